"""The `train` section: how a model is trained."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from recsys_cli.config.schedule import Constant, Schedule
from recsys_cli.config.section import Section

Device = Literal["auto", "cpu", "cuda"]


class TrainConfig(Section):
    """How the model is trained."""

    epochs: int = Field(1, ge=1)
    """Passes over the training rows."""
    batch_size: int = Field(32_768, ge=1)
    """Rows of a step."""
    seed: int = Field(42, ge=0)
    """Decides the weights at the start, the order of the rows and the dropout."""
    sparse: bool = False
    """Update only the embedding rows of the batch: SparseAdam for embeddings and AdamW for the rest, instead of Adam for all."""
    learning_rate: float = Field(0.01, gt=0)
    """Step size of all parameters, or of all but the embeddings where `embedding_learning_rate` is given."""
    embedding_learning_rate: float | None = Field(None, gt=0)
    """Step size of the embedding tables; as `learning_rate` where left out."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay (AdamW) of all parameters but the embeddings."""
    embedding_weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay of the embedding tables; not with `sparse`, whose optimizer has none."""
    schedule: Schedule = Constant()
    """How the learning rates change: constant, cosine, step or plateau, each with `warmup_steps`."""
    clip: float | None = Field(None, gt=0)
    """Longest gradient, as the Euclidean norm over all parameters; a longer one is shortened to it. None leaves them."""
    accumulate: int = Field(1, ge=1)
    """Compute each batch in so many parts whose gradients are added up: less memory, the same step."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """fp32, or autocast to bf16, or to fp16 with scaled losses; `auto` is bf16 where the hardware computes it natively."""
    device: Device = "auto"
    """Where to train; `auto` takes a GPU if there is one."""
    early_stopping: int | None = Field(None, ge=1)
    """Stop after so many epochs without a better valid AUC; None trains all epochs."""
    checkpoint_steps: int = Field(1_000, ge=1)
    """Write the `last` checkpoint every so many steps, and at the end of every epoch."""
    memory: int = Field(4_096, ge=1)
    """Budget of the loader in MiB: a split that fits is kept in memory, a larger one is streamed."""

    @model_validator(mode="after")
    def _sparse_has_no_decay(self) -> TrainConfig:
        if self.sparse and self.embedding_weight_decay:
            raise ValueError("embedding_weight_decay is not there with sparse: true, because decay touches every row")
        return self
