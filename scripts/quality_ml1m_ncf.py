"""Figures of the protocol `ml1m-ncf` on draws of our own: options on a hold-out of train, then test of several draws.

usage: quality_ml1m_ncf.py ROWS FOLDER [--seeds 0 1 2]

ROWS is the folder with the publisher's train and test rows, as in make_ml1m_ncf.py. FOLDER takes the files and a workspace of each
draw, and a second call reuses them. The hold-out is the last train row of each user among 99 drawn items, and its intervals are not
kept: it only ranks options.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from make_ml1m_ncf import make
from measure import keep, machine, run

OF_IALS: tuple[dict[str, float], ...] = (
    {},
    {"embedding_dim": 16},
    *({"regularization": each} for each in (20, 40, 100)),
    *({"alpha": each} for each in (1, 10)),
    *({"alpha": alpha, "regularization": each} for alpha, each in ((1, 10), (1, 20), (2, 30), (10, 80))),
    {"embedding_dim": 128, "alpha": 2, "regularization": 30},
    {"embedding_dim": 192, "alpha": 1, "regularization": 20},
    {"embedding_dim": 192, "regularization": 40},
    {"regularization": 40, "iterations": 20},
    *({"embedding_dim": 128, "alpha": 2, "regularization": each, "iterations": 20} for each in (20, 40)),
    {"embedding_dim": 128, "regularization": 40, "iterations": 20},
    {"embedding_dim": 256, "regularization": 50, "iterations": 20},
)
"""Candidates on the hold-out; the 128 dimensions with a penalty of 40 and 20 iterations are the entry of the protocol."""
CHOSEN = {"name": "ials", "label": "ials-ncf", "embedding_dim": 128, "regularization": 40, "iterations": 20}


def bench(files: Path, models: list[Any], *overrides: str) -> dict[str, dict[str, dict[str, float]]]:
    """Run the protocol on a folder of files; return value and interval by model and metric."""
    program = [str(Path(sys.executable).with_name("recsys")), "--json", "bench", "--protocol", "ml1m-ncf"]
    workspace = ["--from-file", str(files), "--workspace", str(files.with_name(f"ws-{files.name}"))]
    ran = run([*program, *workspace, f"bench.models={json.dumps(models)}", *overrides]).output
    standings = json.loads(ran[ran.index("{\n") :])["standings"]
    return {
        row["label"]: {
            metric: {key: round(score[key], 4) for key in ("value", "low", "high")}
            for metric, score in row["scores"].items()
        }
        for row in standings
        if not row["is_baseline"]
    }


def mean_of_draws(draws: list[dict[str, dict[str, dict[str, float]]]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return mean and standard deviation over the draws, by model and metric."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for model, metrics in draws[0].items():
        for metric in metrics:
            values = [draw[model][metric]["value"] for draw in draws]
            deviation = {"deviation": round(statistics.stdev(values), 4)} if values[1:] else {}
            found.setdefault(model, {})[metric] = {"mean": round(statistics.mean(values), 4), **deviation}
    return found


def main() -> None:
    """Measure, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    make(given.rows, given.folder / "valid", seed=100, without_last=1)
    candidates = [{"name": "ials", **options} for options in OF_IALS]
    valid = bench(given.folder / "valid", [*candidates, "slim", "ease", "popularity"], "evaluate.bootstrap=50")
    draws = []
    for seed in given.seeds:
        make(given.rows, given.folder / f"test{seed}", seed=seed)
        draws.append(bench(given.folder / f"test{seed}", [CHOSEN, "ials", "ease", "popularity"]))
    result = {
        "work": "ml1m-ncf, the publisher's train and test rows, negatives drawn by make_ml1m_ncf.py",
        "machine": machine("torch", "numpy", "implicit"),
        "valid": {label: {name: one["value"] for name, one in scores.items()} for label, scores in valid.items()},
        "test": {"draws": dict(zip(map(str, given.seeds), draws, strict=True)), "mean": mean_of_draws(draws)},
    }
    keep("ml1m_ncf", result)


if __name__ == "__main__":
    main()
