"""Options of `gru4rec`, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import PositiveInt

from recsys_cli.models.sequence.options import SequenceOptions


class Config(SequenceOptions):
    """GRU4Rec: a recurrent network over the user history predicts the next item (Hidasi et al., 2016 and 2018)."""

    train_defaults: ClassVar[Mapping[str, Any]] = {**SequenceOptions.train_defaults, "learning_rate": 0.002}

    hidden_size: PositiveInt = 128
    """Width of the GRU's hidden state."""
    num_layers: PositiveInt = 1
    """Number of stacked GRU layers."""
