"""Measure the figures of docs/benchmarks.md, one after the other; about an hour on two cores. `make bench` runs it.

usage: bench.py [--baselines ../shared/baselines] [--folder build/bench] [--rounds 3]

Makes the 25 M rows that the peers were measured on, prepares them with both programs, and runs each benchmark. Results go to
scripts/results/.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECSYS = str(Path(sys.executable).with_name("recsys"))


def main() -> None:
    """Run the benchmarks in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baselines", type=Path, default=HERE.parents[1] / "shared" / "baselines")
    parser.add_argument("--folder", type=Path, default=HERE.parent / "build" / "bench")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if not given.baselines.is_dir():
        raise SystemExit(f"no peers in {given.baselines}: give --baselines the folder with their programs")
    folder, rounds = given.folder, ["--rounds", str(given.rounds)]
    if not (folder / "ratings.csv").is_file():
        _python(given.baselines / "make_ml25_shape.py", "25e6", folder)
    _python(HERE / "bench_etl.py", folder, "--peer", given.baselines / "nvtabular_etl.py", "--keep", *rounds)
    prepared = max((folder / "workspace" / "data").iterdir(), key=lambda path: path.stat().st_mtime)
    _python(HERE / "bench_loader.py", prepared, "--merlin", folder, "--peer", given.baselines, *rounds)
    _python(HERE / "bench_training.py", prepared, folder, "--peer", given.baselines / "merlin_train.py", *rounds)
    _python(HERE / "bench_ranking.py", *rounds)


def _python(script: Path, *arguments: object) -> None:
    print(f"== {script.name}", flush=True)
    subprocess.run([sys.executable, str(script), *map(str, arguments)], check=True)


if __name__ == "__main__":
    main()
