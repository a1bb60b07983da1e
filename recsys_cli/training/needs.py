"""Where the memory of training is needed: sums over what was measured, so that other settings are tried at no cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from recsys_cli.config import Placement, TrainConfig
from recsys_cli.training.sizes import Sizes, Tried

Kind = Literal["host", "device"]
_READY = 5
"""Batches that a loader has at a time: the one in use, and those that are ready or being built."""


@dataclass(frozen=True)
class Rows:
    """What the rows of the data take in memory, in bytes.

    Attributes:
        train: All rows of train.
        valid: All rows of valid.
        joined: The tables that are looked up for each batch.
    """

    train: int
    valid: int
    joined: int


@dataclass(frozen=True)
class Where:
    """What there is to train on.

    Attributes:
        on_gpu: Whether the model is on a GPU.
        placement: Where its embedding tables are.
        processes: How many processes train together on this machine.
        free: Bytes that are free on the GPU.
    """

    on_gpu: bool = False
    placement: Placement = "device"
    processes: int = 1
    free: int = 0


@dataclass(frozen=True)
class Need:
    """One thing that takes memory.

    Attributes:
        what: What it is.
        place: In the memory of the host, or of a GPU.
        num_bytes: How much; in the host's memory for all processes together, on a GPU for each.
        note: What there is to know about it.
    """

    what: str
    place: Kind
    num_bytes: int
    note: str = ""


def needs(sizes: Sizes, tried: Tried, rows: Rows, config: TrainConfig, where: Where) -> list[Need]:
    """Return everything that takes memory while a model is trained.

    Args:
        sizes: Of the model, as `config` trains it.
        tried: What a part of a process's batch takes.
        rows: What the data takes.
        config: How it is trained.
        where: What it is trained on.
    """
    tables: Kind = "device" if where.on_gpu and where.placement != "host" else "host"
    rest: Kind = "device" if where.on_gpu else "host"
    parts = where.processes if where.placement == "sharded" else 1
    sums = {field: sum(getattr(table, field) for table in sizes.tables) for field in ("weights", "state", "gradient")}
    found = [
        Need("embedding tables", tables, sums["weights"] // parts),
        Need("their optimizer state", tables, sums["state"] // parts),
        Need("their gradients", tables, sums["gradient"], "the rows of a batch" if config.sparse else "whole tables"),
        Need("dense parameters", rest, sizes.dense),
        Need("their optimizer state and gradients", rest, sizes.dense_state + sizes.dense_gradient),
        Need("moving average", rest, sizes.average),
        Need("activations of a batch", rest, tried.activations, f"{tried.rows:,} rows at a time"),
        Need("joined tables", rest, rows.joined),
        Need("batches that are ready", rest, tried.batch * config.accumulate * _READY),
    ]
    left = where.free - total(found, "device")
    found += [
        _rows_of(split, size, config.memory, left) for split, size in (("train", rows.train), ("valid", rows.valid))
    ]
    every = [
        replace(need, num_bytes=need.num_bytes * (where.processes if need.place == "host" else 1)) for need in found
    ]
    return [need for need in every if need.num_bytes]


def _rows_of(split: str, size: int, memory: int, left: int) -> Need:
    """Tell as the loader decides: rows that fit its budget are kept, on the GPU where they take half of what is left there."""
    if size > memory << 20:
        return Need(f"rows of {split}", "host", memory << 20, f"streamed within train.memory={memory}")
    return Need(f"rows of {split}", "device" if size <= left // 2 else "host", size, "kept in memory")


def total(found: list[Need], place: Kind) -> int:
    """Return how much memory of a place is needed."""
    return sum(need.num_bytes for need in found if need.place == place)
