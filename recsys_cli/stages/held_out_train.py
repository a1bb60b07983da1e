"""Data without a valid split: the number of epochs, and the figures of a candidate of `auto`, on rows held out of train."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from recsys_cli.config import EvaluateConfig, RunConfig, TrainConfig
from recsys_cli.evaluation.held_out import is_relevant
from recsys_cli.events import Emit, Message
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import FIRST
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.metrics.named import CutOff, find_metric
from recsys_cli.stages.trainer import fit_run, new_model
from recsys_cli.training.ranks import Ranks
from recsys_cli.workspace import PreparedData, TrainedRun, read_json, write_json

_HELD_OUT = 0x484F
"""Seed offset of the choice of rows."""
_SHARE = 0.1
"""Share of the rows, or of each user's relevant rows for a metric of rankings."""
_FEWEST = 3
"""Relevant rows of a user with held-out ones, of which there is at least one."""


def search_of(run: TrainedRun) -> TrainedRun:
    """Return the search of a run, with its rows; the caller of `find_epochs` removes it."""
    return TrainedRun(run.folder / "held-out")


def find_epochs(
    run: TrainedRun, data: PreparedData, config: RunConfig, *, key: str, ranks: Ranks, resume: bool, emit: Emit
) -> dict[str, Any] | None:
    """Return the best number of epochs on rows held out of train, with its figures; None without such rows.

    The search is a training run in a folder of its own: interrupted, it is resumed from its `last` checkpoint. Its
    result stays in the run's folder, so that a resumed run does not search again.
    """
    found = run.folder / "held_out.json"
    if ranks.from_first(found.is_file()):
        return dict(ranks.from_first(read_json(found, hint="recsys train --force") if ranks.is_first else None))
    search = search_of(run)
    sizes = ranks.from_first(_divide(data, search.folder, config.train) if ranks.is_first else None)
    if not sizes[1]:
        return None
    started = time.perf_counter()
    part = _Divided(data.folder, search.folder, *sizes)
    options = config.train.model_copy(update={"trackers": ()})
    model = new_model(part, config.model, options)
    purpose = "measure the model" if model.rows == "all" else "choose the number of epochs"
    emit(Message(
        f"the data has no valid split: {sizes[1]:,} of {sum(sizes):,} rows are held out of train to {purpose}, "
        "then all of train is fitted (train.early_stopping=null fits it at once)"
    ))  # fmt: skip
    own = config.model_copy(update={"train": options})
    result = fit_run(search, model, part, own, key=key, ranks=ranks, resume=resume, emit=emit)
    best = ranks.from_first(result.best and {"epochs": result.best.epoch, "valid": result.best.valid})
    best |= {"rows": sizes[1], "tried": len(result.history), "seconds": round(time.perf_counter() - started, 3)}
    if model.rows != "all":
        emit(Message(
            f"{options.monitor} is best after {best['epochs']} of {best['tried']} epochs, found in {best['seconds']:.0f} s: "
            f"all of train for {best['epochs']} epochs", facts=best,
        ))  # fmt: skip
    if ranks.is_first:
        write_json(found, best)
    return dict(best)


@dataclass(frozen=True)
class _Divided(PreparedData):
    """Prepared data with a part of train as valid, in a folder of its own."""

    parts: Path
    num_train: int
    num_valid: int

    @property
    def manifest(self) -> dict[str, Any]:
        return {**super().manifest, "rows": {"train": self.num_train, "valid": self.num_valid}}

    def shards(self, split: str) -> list[Path]:
        return PreparedData(self.parts).shards(split)


def _divide(data: PreparedData, folder: Path, config: TrainConfig) -> tuple[int, int]:
    """Write the rows of train in two parts; return their numbers."""
    held_out = _chosen(read_interactions(data, "train", times=True), config)
    masks = {"train": ~held_out, "valid": held_out}
    for split in masks:
        shutil.rmtree(folder / split, ignore_errors=True)  # of an interrupted search
        (folder / split).mkdir(parents=True)
    start = 0
    for path in data.shards("train"):
        with pq.ParquetFile(path) as file, ExitStack() as stack:
            writers = {
                split: stack.enter_context(pq.ParquetWriter(folder / split / path.name, file.schema_arrow))
                for split in masks
            }
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group)
                for split, mask in masks.items():
                    writers[split].write_table(rows.filter(mask[start : start + len(rows)]))
                start += len(rows)
    return int(masks["train"].sum()), int(held_out.sum())


def _chosen(rows: Interactions, config: TrainConfig) -> npt.NDArray[np.bool_]:
    """Return a mask of the held-out rows: a random share, or for a metric of rankings the last relevant rows of users.

    As many users as an evaluation ranks, chosen at random. Without times, random rows are the last. One row of each of
    610 users of MovieLens latest-small is too few: lightgcn stops after 3 epochs, with .232 where 20 epochs give .262.
    """
    keys = hash_counters(np.arange(len(rows), dtype=np.uint64), mix(config.seed, _HELD_OUT))
    if not isinstance(find_metric(config.monitor), CutOff):
        return keys < np.uint64(int(_SHARE * 2**64))
    rules = EvaluateConfig()
    eligible = is_relevant(rows, rules.relevance) & (rows.user_idx >= FIRST) & (rows.item_idx >= FIRST)
    if rows.sampled is not None:
        eligible &= ~rows.sampled
    order = rows.chronological() if rows.times is not None else np.lexsort((keys, rows.user_idx))
    order = order[eligible[order]]
    users, starts, counts = np.unique(rows.user_idx[order], return_index=True, return_counts=True)
    enough = np.flatnonzero(counts >= _FEWEST)
    shuffled = np.argsort(hash_counters(users[enough].astype(np.uint64), mix(config.seed, _HELD_OUT, 1)))
    drawn = enough[shuffled[: rules.max_ranking_users]]
    number = np.zeros(len(users), dtype=np.intp)
    number[drawn] = np.maximum(1, (counts[drawn] * _SHARE).astype(np.intp))
    left = np.repeat(starts + counts, counts) - np.arange(len(order))  # rows of the user from this one on
    mask = np.zeros(len(rows), dtype=bool)
    mask[order[left <= np.repeat(number, counts)]] = True
    return mask
