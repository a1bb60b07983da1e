"""Shared options of models of the interaction matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from recsys_cli.config.section import Section


class HistoryOptions(Section):
    """Options of models fitted to the interaction matrix instead of labels."""

    train_defaults: ClassVar[Mapping[str, Any]] = {"monitor": "ndcg@10"}

    positive_only: bool = False
    """Use positive interactions only, not all: those with label 1, or with a numeric label above its mean in train."""
