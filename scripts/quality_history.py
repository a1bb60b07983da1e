"""What histories and collaborative features are worth to ranking models on ml-latest-small: test AUC, with paired intervals.

usage: quality_history.py ZIP [--models fm din ...] [--seeds 0 1 2] [--folder FOLDER] [--splits make_splits.py]

ZIP is MovieLens latest-small, the label a rating above 3. `random` is the fixed random split, with 5 % of train held out to choose
the epoch, another part for each seed; `temporal` the fixed split by time. Models have their own defaults; `+ history` adds
`model.history={}`, `+ collaborative` adds `model.collaborative={}`, and `+ rating` a second label, the rating scaled to [0, 1].
Differences are those to models without options, and to the same model with fewer of them, by users' rows and seeds. FOLDER keeps
the runs, and those there are not trained again. Earlier results of other models stay in the file.
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
from measure import RESULTS, keep, machine, run
from rating_tasks import TASKS

from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.rankings import Rankings

RECSYS = str(Path(sys.executable).with_name("recsys"))
OPTIONS = {"history": "model.history={}", "collaborative": "model.collaborative={}"}
MODELS = (
    "fm", "dcn-v2", "lightgbm", "lightgbm + rating", "fm + history", "dcn-v2 + history", "din", "bst", "fm + collaborative",
    "dcn-v2 + collaborative", "fm + history + collaborative", "dcn-v2 + history + collaborative", "fm + collaborative + rating",
    "fm + history + collaborative + rating",
)  # fmt: skip
WITHOUT = ("fm", "dcn-v2", "lightgbm", "lightgbm + rating")


def split(protocol: str, seed: int, files: Path, folder: Path) -> str:
    """Return the split of a protocol as an override."""
    own = files / protocol
    if protocol == "random":
        parts = hold_out(own / "train.parquet", folder, share=0.05, number=seed)
        return split_of({**parts, "test": str(own / "test.parquet")})
    return split_of({name: str(own / f"{name}.parquet") for name in ("train", "valid", "test")})


def compared(outcomes: dict[str, list[Outcomes]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the difference in AUC of each model to those without options and to its parts, with its interval."""
    mean = {name: Outcomes.mean(several) for name, several in outcomes.items()}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name in sorted(set(mean) - set(WITHOUT)):
        for other in (one for one in mean if one in WITHOUT or name.startswith(f"{one} + ")):
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
    parser.add_argument("--models", nargs="*", choices=MODELS, default=MODELS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--splits", type=Path, default=SCRIPT)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        liked = TASKS["liked"]
        configs = {rated: folder / f"{'rated' if rated else 'base'}.yaml" for rated in (False, True)}
        for rated, config in configs.items():
            sections = {
                "dataset": {"name": "movielens-latest-small"},
                "features": liked.graded if rated else liked.features,
                "evaluate": {"max_ranking_users": 10},
            }
            config.write_text(yaml.safe_dump(sections, sort_keys=False), encoding="utf-8")
        (folder / "files").mkdir(exist_ok=True)
        files = make_splits(given.zip, given.splits, folder / "files")
        results = json.loads((RESULTS / "quality_history.json").read_text(encoding="utf-8"))
        for protocol in given.protocols:
            outcomes: dict[str, list[Outcomes]] = {}
            figures: dict[str, Any] = {}
            for name in given.models:
                found = []
                for seed in given.seeds:
                    workspace = folder / "runs" / f"{protocol}-{seed}-{name.replace(' ', '')}"
                    model, *parts = name.split(" + ")
                    line = [RECSYS, "-q", "-w", str(workspace)]
                    run([*line, "download", "movielens-latest-small", "--from-file", str(given.zip)])
                    rows = split(protocol, seed, files, folder / "files")
                    options = [f"model.name={model}", *(OPTIONS[part] for part in parts if part in OPTIONS)]
                    config = configs["rating" in parts]
                    run([*line, "run", str(config), rows, f"train.seed={seed}", "train.device=cpu", *options])
                    found.append(figures_on_test(workspace))
                    outcomes.setdefault(name, []).append(
                        Outcomes.of(Rankings.read(latest_run(workspace) / "rankings.safetensors"))
                    )
                    print(protocol, name, seed, json.dumps(found[-1]), flush=True)
                mean, spread = means(found)
                figures[name] = {"seeds": len(found), "mean": mean, "standard_deviation": spread}
            for part, measured in (("figures", figures), ("differences", compared(outcomes))):
                results[protocol][part] |= measured
            keep("quality_history", {**results, "work": __doc__.splitlines()[0], "machine": machine("torch")})


if __name__ == "__main__":
    main()
