"""The `protocol` section: the published figures of an evaluation, next to the results of `recsys bench`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recsys_cli.config.section import Section


class PublishedRow(Section):
    """A model with published figures."""

    model: str
    """Name of the model in the publication."""
    source: str
    """Publication of the figures."""
    figures: dict[str, float] = Field(min_length=1)
    """Value by metric of `bench.metrics`."""
    ours: str | None = None
    """Model to compare with: the label of a bench entry, or a name for the best of its entries. None: the best of all."""


class ProtocolConfig(Section):
    """A published protocol: figures of other models on the same data, split, candidates and metrics."""

    paper: str
    """Publication of the protocol, with its conventions."""
    rows: dict[Literal["train", "valid", "test"], int] = Field(default_factory=dict)
    """Rows of the published splits, to verify the data."""
    notes: tuple[str, ...] = ()
    """Known differences to the published evaluation."""
    published: tuple[PublishedRow, ...] = Field(min_length=1)
    """Published figures, as in the publications."""
