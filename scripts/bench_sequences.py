"""Training cost against quality of sequence models: processor seconds and valid NDCG@10 of options, all on one prepared dataset.

usage: bench_sequences.py CONFIG [--workspace WS] [--name NAME] [--only ROW ...] [--row "LABEL: KEY=VALUE ..."] [--seeds 1] [--test]

The data of CONFIG has to be prepared (recsys etl). Each row trains with its overrides and early stopping; the epoch is chosen on
the usual sample of valid users, and the figure is of all users of valid (`--test` adds test, for a choice already made). Processor
seconds are those of training with its validations, in this process. Results of other rows stay in scripts/results/NAME.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from measure import RESULTS, keep, machine

from recsys_cli.config import EvaluateConfig, RunConfig, load
from recsys_cli.evaluation.measure import measure
from recsys_cli.models.model import Model
from recsys_cli.stages.etl import prepared_data
from recsys_cli.stages.trainer import new_model, trainer_of
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.training.events import EpochEnded
from recsys_cli.workspace import PreparedData, Workspace

ROWS = {
    "sasrec": (),
    "sasrec, 256 negatives": ("model.num_negatives=256",),
    "sasrec, all items": ("model.num_negatives=all",),
    "sasrec, gbce": ("model.loss=gbce",),
    "sasrec, ligr": ("model.layer=ligr",),
    "hstu": ("model.name=hstu",),
    "gru4rec": ("model.name=gru4rec",),
}


def main() -> None:
    """Train each row and keep its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--workspace", type=Path, default=Path("workspace"))
    parser.add_argument("--name", default="sequences")
    parser.add_argument("--only", nargs="+", choices=ROWS)
    parser.add_argument("--row", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--test", action="store_true")
    given = parser.parse_args()
    chosen = {label: ROWS[label] for label in given.only or (() if given.row else ROWS)}
    chosen |= {label: tuple(keys.split()) for label, _, keys in (row.partition(": ") for row in given.row)}
    for label, overrides in chosen.items():
        for seed in range(42, 42 + given.seeds):
            config = load(given.config, [*overrides, f"train.seed={seed}"])
            data = prepared_data(config, Workspace(given.workspace))
            figures = measured(config, data, test=given.test) | {"options": " ".join(overrides)}
            file = RESULTS / f"{given.name}.json"
            before = json.loads(file.read_text()) if file.is_file() else {}
            name = label if seed == 42 else f"{label}, seed {seed}"
            rows = before.get("rows", {}) | {name: figures}
            keep(given.name, {**before, "rows": rows, "machine": machine("torch")})


def measured(config: RunConfig, data: PreparedData, *, test: bool) -> dict[str, Any]:
    """Train one config and return its figures."""
    started, best, history = time.process_time(), {}, []
    model = new_model(data, config.model, config.train)
    trainer = trainer_of(model, config.model.name, data, config.train, ranks=Ranks())
    for event in trainer.events():
        if isinstance(event, EpochEnded):
            seconds = round(time.process_time() - started, 1)
            history.append((seconds, round(event.record.valid["ndcg@10"] or 0.0, 4)))
            print(event.record.epoch, history[-1], event.record.train_loss, flush=True)
            if event.best:
                best = {name: value.clone() for name, value in trainer.weights().items()}
    model.load_state_dict({name.removeprefix("model."): value for name, value in best.items()})
    model.eval()
    chosen = {"epochs": len(history), "length": getattr(model, "length", None), "batch": trainer.config.batch_size}
    figures = {"cpu_seconds": history[-1][0], **chosen, "history": history, "valid": _ndcg(model, data, "valid")}
    return figures | ({"test": _ndcg(model, data, "test")} if test else {})


def _ndcg(model: Model, data: PreparedData, split: str) -> float:
    """Return NDCG@10 of all users of a split: unseen items, the earlier splits as history."""
    only = EvaluateConfig(split=split, relevance="all", k=(10,), max_ranking_users=None, bootstrap=10)
    measured, _ = measure(model, data, config=only)
    assert measured.ranking is not None
    return round(measured.ranking["model"]["ndcg@10"].value or 0.0, 4)


if __name__ == "__main__":
    main()
