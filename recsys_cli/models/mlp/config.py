"""Options of the `mlp` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import PositiveInt

from recsys_cli.models.ranking.options import TRAINED_IN_SMALL_STEPS, TowerOptions


class Config(TowerOptions):
    """The network of the Merlin notebook: embeddings, concatenated, through dense layers to one logit.

    The notebook drops nothing, takes null for `embedding_dim`, and steps of 32,768 rows: for many millions of interactions
    (configs/ml25m.yaml). A hundred thousand are learnt by heart that way; the defaults are for these.
    """

    train_defaults: ClassVar[Mapping[str, Any]] = TRAINED_IN_SMALL_STEPS
    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the embeddings: one for all, by column name, or (for columns not named, and with null) from the
    cardinality n: min(512, max(16, round(1.6 n^0.56)))."""
