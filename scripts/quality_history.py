"""What a history is worth to ranking models on ml-latest-small: test AUC with and without it, with paired intervals over seeds.

usage: quality_history.py ZIP [--models fm din ...] [--seeds 0 1 2] [--folder FOLDER] [--splits make_splits.py]

ZIP is MovieLens latest-small, the label a rating above 3. `random` is the fixed random split, with 5 % of train held out to choose
the epoch, another part for each seed; `temporal` the fixed split by time. Models have their own defaults; `+ history` adds
`model.history={}`. Differences are those to the models without history, by users' rows and seeds. FOLDER keeps the runs, and those
there are not trained again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from fixed_splits import SCRIPT, figures_on_test, hold_out, latest_run, make_splits, means, split_of
from measure import keep, machine, run
from rating_tasks import FEATURES

from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.rankings import Rankings

RECSYS = str(Path(sys.executable).with_name("recsys"))
HISTORY = ["model.history={}"]
MODELS = {
    "fm": ("model.name=fm", []),
    "dcn-v2": ("model.name=dcn-v2", []),
    "lightgbm": ("model.name=lightgbm", []),
    "fm + history": ("model.name=fm", HISTORY),
    "dcn-v2 + history": ("model.name=dcn-v2", HISTORY),
    "din": ("model.name=din", []),
    "bst": ("model.name=bst", []),
}
WITHOUT = ("fm", "dcn-v2", "lightgbm")


def split(protocol: str, seed: int, files: Path, folder: Path) -> str:
    """Return the split of a protocol as an override."""
    own = files / protocol
    if protocol == "random":
        parts = hold_out(own / "train.parquet", folder, share=0.05, number=seed)
        return split_of({**parts, "test": str(own / "test.parquet")})
    return split_of({name: str(own / f"{name}.parquet") for name in ("train", "valid", "test")})


def compared(outcomes: dict[str, list[Outcomes]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the difference in AUC of each model to those without history, with its interval."""
    mean = {name: Outcomes.mean(several) for name, several in outcomes.items()}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name in sorted(set(mean) - set(WITHOUT)):
        for other in (one for one in WITHOUT if one in mean):
            tested = mean[name].minus(mean[other], ["auc"], resamples=1_000, seed=0)["auc"]
            found.setdefault(name, {})[other] = {
                "difference": round(tested.value, 4), "interval": [round(tested.low, 4), round(tested.high, 4)],
            }  # fmt: skip
    return found


def main() -> None:
    """Measure the models and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=Path)
    parser.add_argument("--protocols", nargs="*", default=["random", "temporal"])
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--splits", type=Path, default=SCRIPT)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        config = folder / "base.yaml"
        sections = {
            "dataset": {"name": "movielens-latest-small"},
            "features": FEATURES,
            "evaluate": {"max_ranking_users": 10},
        }
        config.write_text(yaml.safe_dump(sections, sort_keys=False), encoding="utf-8")
        (folder / "files").mkdir(exist_ok=True)
        files = make_splits(given.zip, given.splits, folder / "files")
        results = {}
        for protocol in given.protocols:
            outcomes: dict[str, list[Outcomes]] = {}
            figures: dict[str, Any] = {}
            for name in given.models:
                found = []
                for seed in given.seeds:
                    workspace = folder / "runs" / f"{protocol}-{seed}-{name.replace(' ', '')}"
                    model, options = MODELS[name]
                    line = [RECSYS, "-q", "-w", str(workspace)]
                    run([*line, "download", "movielens-latest-small", "--from-file", str(given.zip)])
                    parts = split(protocol, seed, files, folder / "files")
                    run([*line, "run", str(config), parts, f"train.seed={seed}", "train.device=cpu", model, *options])
                    found.append(figures_on_test(workspace))
                    outcomes.setdefault(name, []).append(
                        Outcomes.of(Rankings.read(latest_run(workspace) / "rankings.safetensors"))
                    )
                    print(protocol, name, seed, json.dumps(found[-1]), flush=True)
                mean, spread = means(found)
                figures[name] = {"mean": mean, "standard_deviation": spread}
            results[protocol] = {"figures": figures, "differences": compared(outcomes)}
            keep(
                "quality_history",
                {"work": __doc__.splitlines()[0], "seeds": given.seeds, **results, "machine": machine("torch")},
            )


if __name__ == "__main__":
    main()
