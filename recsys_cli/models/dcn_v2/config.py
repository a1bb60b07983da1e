"""Options of the `dcn-v2` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from recsys_cli.models.ranking.options import TRAINED_IN_SMALL_STEPS, TowerOptions


class Config(TowerOptions):
    """Crosses of all features, of one degree more in each layer, with a tower after or beside them (Wang et al., 2021)."""

    train_defaults: ClassVar[Mapping[str, Any]] = TRAINED_IN_SMALL_STEPS
    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the embeddings: one for all, by column name, or (for columns not named, and with null) from the
    cardinality n: min(512, max(16, round(1.6 n^0.56)))."""
    num_cross_layers: PositiveInt = 2
    """Number of cross layers: with L of them features are multiplied up to L + 1 at a time."""
    rank: PositiveInt | None = None
    """Rank of the cross layers' matrices, which then are products of two thin ones: a quarter of the width of all embeddings and
    numbers together is often enough, and costs half. None for whole matrices."""
    structure: Literal["stacked", "parallel"] = "stacked"
    """`stacked`: the tower looks at what the crosses made. `parallel`: at the features, and the logits of both are added."""
