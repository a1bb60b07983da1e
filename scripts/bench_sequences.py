"""Training cost against quality of sequence models: processor seconds and valid NDCG@10 of options, all on one prepared dataset.

usage: bench_sequences.py CONFIG [--workspace WS] [--name NAME] [--only ROW ...] [--row "LABEL: KEY=VALUE ..."] [--seeds 1] [--test]
       [--paired LABEL]

The data of CONFIG has to be prepared (recsys etl). Each row trains with its overrides and early stopping; the epoch is chosen on
the usual sample of valid users, and the figure is of all users of valid (`--test` adds test, for a choice already made). `--paired`
names a row of the same call: the others get their difference to it on valid, with a 95 % interval over users of equal seeds.
Processor seconds are those of training with its validations, in this process. Results of other rows stay
in scripts/results/NAME.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from measure import RESULTS, keep, machine

from recsys_cli.config import EvaluateConfig, RunConfig, load
from recsys_cli.evaluation.compare.paired import by_users
from recsys_cli.evaluation.measure import measure
from recsys_cli.metrics.metric import Hits
from recsys_cli.metrics.rankings import ndcg
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
    parser.add_argument("--paired", metavar="LABEL")
    given = parser.parse_args()
    chosen = {label: ROWS[label] for label in given.only or (() if given.row else ROWS)}
    chosen |= {label: tuple(keys.split()) for label, _, keys in (row.partition(": ") for row in given.row)}
    by_user: dict[tuple[str, int], Any] = {}
    for label, overrides in chosen.items():
        for seed in range(42, 42 + given.seeds):
            config = load(given.config, [*overrides, f"train.seed={seed}"])
            data = prepared_data(config, Workspace(given.workspace))
            figures, by_user[label, seed] = measured(config, data, test=given.test)
            figures |= {"options": " ".join(overrides)}
            if label != given.paired and (given.paired, seed) in by_user:
                figures["paired"] = paired(by_user[label, seed] - by_user[given.paired, seed]) | {"to": given.paired}
            file = RESULTS / f"{given.name}.json"
            before = json.loads(file.read_text()) if file.is_file() else {}
            name = label if seed == 42 else f"{label}, seed {seed}"
            rows = before.get("rows", {}) | {name: figures}
            keep(given.name, {**before, "rows": rows, "machine": machine("torch")})


def measured(config: RunConfig, data: PreparedData, *, test: bool) -> tuple[dict[str, Any], Any]:
    """Train one config; return its figures and NDCG@10 by user of valid."""
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
    by_user = _ndcg(model, data, "valid")
    figures = {"cpu_seconds": history[-1][0], **chosen, "history": history, "valid": round(float(by_user.mean()), 4)}
    return figures | ({"test": round(float(_ndcg(model, data, "test").mean()), 4)} if test else {}), by_user


def paired(differences: Any) -> dict[str, float]:
    """Return the mean of differences by user, with its 95 % interval."""
    (found,) = by_users(differences[:, None], resamples=1_000, seed=0)
    return {"difference": round(found.value, 4), "low": round(found.low, 4), "high": round(found.high, 4)}


def _ndcg(model: Model, data: PreparedData, split: str) -> Any:
    """Return NDCG@10 by user of a split: unseen items, the earlier splits as history."""
    only = EvaluateConfig(split=split, relevance="all", k=(10,), max_ranking_users=None, bootstrap=10)
    _, rankings = measure(model, data, config=only)
    return ndcg(Hits(rankings.hits["model"], rankings.num_relevant), 10)


if __name__ == "__main__":
    main()
