"""The section `update`: what `recsys update` holds out, tolerates and keeps."""

from __future__ import annotations

from pydantic import Field

from recsys_cli.config.section import MAX_COUNT, Section


class UpdateConfig(Section):
    """The daily update: hold-out, gate and full runs."""

    held_out: float = Field(0.2, gt=0, lt=1)
    """Share of the new rows, the latest, that judge yesterday's model and the new one; the next update trains on them."""
    tolerance: float = Field(0.05, ge=0, lt=1)
    """Highest relative loss of the gate's metric: a model is refused if it is worse by more, at 95 % confidence."""
    epochs: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Epochs of a model that continues from yesterday's weights, over the new rows and a sample of the others. None: 4 with Adagrad
    (`train.embedding_optimizer`), whose steps have become small, otherwise 1: those of Adam have not."""
    history: float = Field(3.0, ge=0)
    """Sampled earlier rows per new row, against forgetting; see `train.recent`."""
    full_every: int | None = Field(7, ge=1, le=MAX_COUNT)
    """Updates between two full trainings, each compared with the continued model. None: never after the first."""
    keep: int = Field(3, ge=1, le=MAX_COUNT)
    """Served versions that stay, with their runs and prepared data, for a rollback."""
