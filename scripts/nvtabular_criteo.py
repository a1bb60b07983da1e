"""The Criteo recipe on real NVTabular, on a CPU: counts filled, clipped, logged, normalised; categories with threshold and buckets.

usage: nvtabular_criteo.py FOLDER OUT

FOLDER holds the parquet files of make_criteo_shape.py. A fifth is held out by the same kind of random split as in the MovieLens
notebooks, which is written first, because NVTabular splits nothing. Prints the seconds of each step.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import nvtabular as nvt  # noqa: E402
import pandas as pd  # noqa: E402

THRESHOLD, BUCKETS = 15, 1000


def main() -> None:
    """Split, fit and transform."""
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    clock = time.time()
    rng = np.random.default_rng(0)
    for file in sorted(folder.glob("day-*.parquet")):
        rows = pd.read_parquet(file)
        valid = rng.random(len(rows)) < 0.2
        for split, chosen in (("train", ~valid), ("valid", valid)):
            (out / f"raw-{split}").mkdir(parents=True, exist_ok=True)
            rows[chosen].to_parquet(out / f"raw-{split}" / file.name)
    print(f"split and write: {time.time() - clock:.2f} s", flush=True)

    numbers = [f"I{number}" for number in range(1, 14)]
    categories = [f"C{number}" for number in range(1, 27)]
    normalised = (
        numbers
        >> nvt.ops.FillMissing(fill_val=0)
        >> nvt.ops.Clip(min_value=0)
        >> nvt.ops.LogOp()
        >> nvt.ops.Normalize()
    )
    encoded = categories >> nvt.ops.Categorify(
        freq_threshold=THRESHOLD, num_buckets=BUCKETS, out_path=str(out / "categories")
    )
    workflow = nvt.Workflow(normalised + encoded + ["label"])
    splits = {
        split: nvt.Dataset(
            sorted(map(str, (out / f"raw-{split}").glob("*.parquet"))), engine="parquet", part_size="100MB"
        )
        for split in ("train", "valid")
    }
    clock = time.time()
    workflow.fit(splits["train"])
    print(f"fit: {time.time() - clock:.2f} s", flush=True)
    for split, dataset in splits.items():
        clock = time.time()
        workflow.transform(dataset).to_parquet(output_path=str(out / split), shuffle=nvt.io.Shuffle.PER_PARTITION)
        print(f"transform {split}: {time.time() - clock:.2f} s", flush=True)


if __name__ == "__main__":
    main()
