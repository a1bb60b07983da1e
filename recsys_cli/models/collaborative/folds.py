"""Out-of-fold features of train rows: the features of a row are fitted without its fold and so without its pair's labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from recsys_cli.features.hashing import mix
from recsys_cli.features.schema import Schema
from recsys_cli.models.collaborative.config import CollaborativeOptions
from recsys_cli.models.collaborative.features import CollaborativeFeatures
from recsys_cli.models.collaborative.rows import Categories, Rows


def folds_of_pairs(rows: Rows, num_folds: int, *, seed: int) -> Tensor:
    """Return the fold of each row, shape (N,), int64: a hash of user and item, so that all rows of a pair are in one fold.

    Hashes are those of `hashing.hash_counters`, computed on the device of the rows.
    """
    hashed = _hash(rows.items, _hash(rows.users, _signed(mix(seed))))
    return (_shift(hashed, 32) * num_folds) >> 32


def _hash(counters: Tensor, key: Tensor | int) -> Tensor:
    """Hash int64 counters as `hash_counters` does; products wrap."""
    values = counters * _signed(0x9E3779B97F4A7C15) + key
    values = (values ^ _shift(values, 30)) * _signed(0xBF58476D1CE4E5B9)
    values = (values ^ _shift(values, 27)) * _signed(0x94D049BB133111EB)
    return values ^ _shift(values, 31)


def _shift(values: Tensor, bits: int) -> Tensor:
    """Shift right without sign extension; torch has no uint64 arithmetic."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def fit_folds(
    config: CollaborativeOptions,
    schema: Schema,
    categories: Categories,
    rows: Rows,
    fold: Tensor,
    *,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> list[CollaborativeFeatures]:
    """Return for each fold the features fitted to the rows of the other folds.

    Args:
        config: Widths, penalties and the number of folds.
        schema: The prepared columns.
        categories: The categorical columns.
        rows: Train rows, on the CPU.
        fold: Fold of each row, shape (N,).
        seed: Seed of the initial factors.
        progress: Called with the number of fitted folds.
    """
    parts = []
    for number in range(config.folds):
        part = CollaborativeFeatures(config, schema, categories)
        part.fit(rows.select(fold != number), seed=seed)
        parts.append(part)
        progress(number + 1)
    return parts


def out_of_fold(parts: Sequence[CollaborativeFeatures], rows: Rows, fold: Tensor) -> Tensor:
    """Return the features of each row from the part of its fold; shape (N, F), float32."""
    columns = [part.columns(rows.select(fold == number)) for number, part in enumerate(parts)]
    return torch.cat(columns)[torch.argsort(torch.argsort(fold, stable=True))]


def average_of_folds(
    config: CollaborativeOptions, schema: Schema, categories: Categories, parts: Sequence[CollaborativeFeatures] = ()
) -> CollaborativeFeatures:
    """Return features whose columns are the mean of the columns of all folds; without parts they are zero.

    Most columns are linear in the buffers, so the buffers are averaged. Those of dot products are not: concatenated vectors have
    the sum of the folds' products.
    """
    wide = {name: config.folds * getattr(config, name) for name in ("embedding_dim", "positions")}
    average = CollaborativeFeatures(config.model_copy(update=wide), schema, categories)
    for name, buffer in average.named_buffers() if parts else ():
        tensors = [part.get_buffer(name) for part in parts]
        if name.endswith(("_factors", "_leaning", "_position")):
            buffer.copy_(torch.cat(tensors, dim=-1))
        else:
            buffer.copy_(torch.stack(tensors).mean(0))
        if name in {"user_factors", "user_leaning", "item_leaning"}:
            buffer.div_(len(parts))
    return average
