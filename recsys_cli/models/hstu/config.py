"""Options of `hstu`, without torch."""

from __future__ import annotations

from recsys_cli.models.sequence.options import AttentionOptions


class Config(AttentionOptions):
    """HSTU: gated pointwise attention with biases of distance and time over the user history (Zhai et al., 2024)."""

    relative_time: bool = True
    """Whether attention has a bias of the time between two interactions."""
