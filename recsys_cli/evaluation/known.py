"""What models may look at beside a batch, from prepared data."""

from __future__ import annotations

from functools import cache

import torch

from recsys_cli.interactions import Interactions
from recsys_cli.loader import Tables
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.models.model import Known
from recsys_cli.workspace import PreparedData


def known_of(
    data: PreparedData, *splits: str, device: torch.device | str = "cpu", tables: Tables | None = None
) -> Known:
    """Return the interactions of some splits, read when they are asked for, and the features of users and items.

    Args:
        data: Prepared.
        splits: Whose rows are known, without those that were drawn: train, or train and valid.
        device: Where the features are wanted.
        tables: Of the same data and on that device, where they are there already.
    """

    @cache
    def interactions() -> Interactions:
        first, *others = (read_interactions(data, split, times=True).met() for split in splits)
        for other in others:
            first = first + other
        return first

    tables = tables or Tables(data, device=device)
    return Known(interactions, tables.join)
