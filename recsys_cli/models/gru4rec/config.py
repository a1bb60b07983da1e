"""Options of the `gru4rec` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import PositiveInt

from recsys_cli.models.sequence.options import SequenceOptions


class Config(SequenceOptions):
    """A recurrent network reads a user's items and tells the next one (Hidasi et al., 2016 and 2018)."""

    train_defaults: ClassVar[dict[str, Any]] = {**SequenceOptions.train_defaults, "learning_rate": 0.002}

    hidden_size: PositiveInt = 128
    """Width of the recurrent state."""
    num_layers: PositiveInt = 1
    """Recurrent layers, one over the other."""
