"""The fixed splits of ml-latest-small that quality is measured on, as `split: {method: files}`, and what a run reached on them."""

from __future__ import annotations

import json
import statistics
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from measure import run

SCRIPT = Path(__file__).resolve().parents[2] / "shared" / "baselines" / "make_splits.py"
"""What makes them; its rows are the same every time."""
FIGURES = ("auc", "log_loss", "accuracy")


def make_splits(archive: Path, script: Path, folder: Path) -> Path:
    """Write the splits of the ratings in a zip of MovieLens; return their folder, which has one for each protocol."""
    with zipfile.ZipFile(archive) as opened:
        member = next(name for name in opened.namelist() if name.endswith("ratings.csv"))
        (folder / "ratings.csv").write_bytes(opened.read(member))
    run([sys.executable, str(script), str(folder), str(folder / "splits")])
    return folder / "splits"


def hold_out(train: Path, folder: Path, *, share: float, number: int) -> dict[str, str]:
    """Take the part `number` out of the rows of train, which are in random order already.

    Args:
        train: Its file.
        folder: Where the two parts are written.
        share: Size of the part.
        number: Which of the parts; it does not overlap another.

    Returns:
        The files of `train`, the rest, and of `valid`, the part.
    """
    rows = pq.read_table(train)
    size = int(rows.num_rows * share)
    start = number * size
    rest = pa.concat_tables([rows.slice(0, start), rows.slice(start + size)])
    paths = {"train": folder / f"train-{share}-{number}.parquet", "valid": folder / f"valid-{share}-{number}.parquet"}
    pq.write_table(rest, paths["train"])
    pq.write_table(rows.slice(start, size), paths["valid"])
    return {name: str(path) for name, path in paths.items()}


def split_of(files: dict[str, str]) -> str:
    """Return the override of a config that takes its splits from files."""
    return f"split={json.dumps({'method': 'files', **files})}"


def figures_on_test(workspace: Path, names: Sequence[str] = FIGURES, *, of: str = "model") -> dict[str, float]:
    """Return what the latest run of a workspace, or a baseline beside it, reached on the rows of test."""
    measured = json.loads((latest_run(workspace) / "evaluation.json").read_text(encoding="utf-8"))
    assert measured["split"] == "test"
    return {name: measured["pointwise"][of][name]["value"] for name in names}


def latest_run(workspace: Path) -> Path:
    """Return the folder of the latest run."""
    return max((workspace / "runs").iterdir(), key=lambda path: path.stat().st_mtime)


def means(found: Sequence[dict[str, float]]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the mean of each figure, and its standard deviation; none of one run."""
    names = found[0]
    mean = {name: round(statistics.mean(figures[name] for figures in found), 4) for name in names}
    if not found[1:]:
        return mean, {}
    return mean, {name: round(statistics.stdev(figures[name] for figures in found), 4) for name in names}
