"""The `train` section: how a model is trained."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from recsys_cli.config.schedule import Constant, Schedule
from recsys_cli.config.section import Section
from recsys_cli.errors import ConfigError
from recsys_cli.metrics.label_task import BINARY
from recsys_cli.registry import TRACKERS, lookup

Device = Literal["auto", "cpu", "cuda"]


class TrainConfig(Section):
    """How the model is trained."""

    # what it learns from, and for how long
    continue_from: str | None = None
    """Name of a finished run of this workspace to begin with, on data that may have grown: rows of tables are found again by the
    value that they stand for, new values get new rows, optimizers begin anew. `recsys train --continue RUN` sets it."""
    epochs: int = Field(1, ge=1)
    """Passes over the training rows."""
    batch_size: Annotated[int, Field(ge=1)] | Literal["auto"] = 32_768
    """Rows of a step, over all processes that train together; users, for models that learn from those. `auto` is for these alone:
    32, and twice as many again and again, up to 256, as long as an epoch keeps 600 steps."""
    seed: int = Field(42, ge=0)
    """Decides the weights at the start, the order of the rows and the dropout."""

    # how a step changes the weights
    sparse_embeddings: bool = False
    """Update only the embedding rows of the batch, by `embedding_optimizer`, beside AdamW for the rest, instead of Adam for all."""
    embedding_optimizer: Literal["adam", "adagrad", "sgd"] = "adam"
    """How `sparse_embeddings` updates a row: `adam` (as SparseAdam; state of twice the tables), `adagrad` (row-wise, as
    FBGEMM and DLRM; one number a row),
    `sgd` (no state). Good rates to begin with: `learning_rate` for adam and ten times it for adagrad; for sgd 3 at a
    batch of 1,024 rows, and more at larger ones, because the gradient is that of the mean over the batch."""
    learning_rate: float = Field(0.01, gt=0)
    """Step size of all parameters, or of all but the embeddings where `embedding_learning_rate` is given."""
    embedding_learning_rate: float | None = Field(None, gt=0)
    """Step size of the embedding tables; as `learning_rate` where left out."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay (AdamW) of all parameters but the embeddings."""
    embedding_weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay of the embedding tables; not with `sparse_embeddings`, whose optimizer has none."""
    scale_learning_rate: Literal["none", "linear", "sqrt"] = "none"
    """Multiply all learning rates by `batch_size` / `reference_batch_size` (`linear`, the rule for SGD: Goyal et al., 2017) or by
    the root of that (`sqrt`, the rule for Adam: Malladi et al., 2022). The number of processes changes no rate by itself."""
    reference_batch_size: int = Field(32_768, ge=1)
    """The batch size that the learning rates are meant for; with `scale_learning_rate`."""
    schedule: Schedule = Constant()
    """How the learning rates change: constant, cosine, step or plateau, each with `warmup_steps`."""
    max_grad_norm: float | None = Field(None, gt=0)
    """Longest gradient, as the Euclidean norm over all parameters; a longer one is shortened to it. None leaves them."""
    gradient_accumulation_steps: int = Field(1, ge=1)
    """Compute each batch in so many parts whose gradients are added up: less memory, the same step, but for BatchNorm, which sees
    the rows of a part together."""

    # what is minimised, and what is kept of the weights
    positive_weight: Literal["balanced"] | Annotated[float, Field(gt=0)] | None = None
    """How much a positive row counts in the loss of training, a negative one counting 1; `balanced` lets all positive rows of
    train together count as much as all negative ones. Of several labels it is the main one that weights a row."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of the labels of training that is replaced by 0.5, so that 0 becomes half of it: the model gets less sure of itself."""
    ema_decay: float | None = Field(None, gt=0, lt=1)
    """Average the weights over the steps: what the average keeps of itself in a step, at most (less in the first steps), such as
    0.999. Validation measures, and `best` holds, the average. Not of the tables with
    `sparse_embeddings`: averaging touches every row."""

    # how it is computed
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """fp32, or autocast to bf16, or to fp16 with scaled losses; `auto` is bf16 where the hardware computes it natively."""
    tf32: bool = False
    """Let a GPU multiply fp32 numbers on its tensor cores, with 10 bits of mantissa; on a CPU it changes nothing."""
    compile: bool = False
    """Compile the loss with torch.compile. It takes seconds to minutes, which are told; what it brings depends on the model and the
    machine, so compare the rows per second. Needs a C++ compiler, and on a GPU Triton."""

    # what is measured, kept and told
    monitor: str = BINARY.default.name
    """Figure of the validation split that decides which epoch is best: `loss`, or one that `recsys ls metrics` lists, such as
    log_loss or ndcg@10 (of a sample of 2,000 users whom train knows; after a split by user of those of valid, where the model folds
    in). Where it is not defined the loss decides, and where there is no loss either the last epoch is kept. A model's own default
    that the data cannot measure gives way to auc, with a warning. Of a label that is a number it is rmse where left out."""
    early_stopping: int | None = Field(None, ge=1)
    """Stop after so many epochs that were no better by what is monitored; None trains all epochs."""
    checkpoint_steps: int = Field(1_000, ge=1)
    """Write the `last` checkpoint every so many steps, and at the end of every epoch."""
    trackers: tuple[str, ...] = ("tensorboard",)
    """Who else is told what training measures: `tensorboard` (event files in the run's folder), `mlflow` (a store in the workspace,
    or MLFLOW_TRACKING_URI), `wandb` (offline), or one of another package. metrics.jsonl is written in any case."""

    # where it happens
    device: Device = "auto"
    """Where to train; `auto` takes a GPU if there is one."""
    devices: int = Field(1, ge=1)
    """Train with so many processes on this machine, each with a GPU of its own or a share of the CPU's cores. They share the rows
    of each step, so the result is the same within rounding, but for what each draws for itself. Under torchrun it is torchrun that
    says how many there are."""
    memory_mib: int = Field(4_096, ge=1)
    """Budget of the loader in MiB, in each process: a split that fits is kept in memory, a larger one is streamed."""

    @field_validator("trackers")
    @classmethod
    def _trackers_are_known(cls, trackers: tuple[str, ...]) -> tuple[str, ...]:
        for name in trackers:
            try:
                lookup(TRACKERS, name, what="tracker")
            except ConfigError as error:
                raise ValueError(f"{error.message}; {error.hint}" if error.hint else error.message) from error
        return tuple(dict.fromkeys(trackers))

    @property
    def rate_factor(self) -> float:
        """What `scale_learning_rate` multiplies the learning rates by."""
        exponent = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}[self.scale_learning_rate]
        return float((self.rows_of_a_step / self.reference_batch_size) ** exponent)

    @property
    def rows_of_a_step(self) -> int:
        """`batch_size`, where it is a number.

        Raises:
            ConfigError: It is `auto`, and the model does not learn from users.
        """
        if self.batch_size == "auto":
            raise ConfigError(
                "train.batch_size: auto is for models that learn from users, such as sasrec",
                hint="give the rows of a step, such as train.batch_size=1024",
            )
        return self.batch_size

    @model_validator(mode="after")
    def _rows_have_rules_of_their_own(self) -> TrainConfig:
        if self.sparse_embeddings and self.embedding_weight_decay:
            raise ValueError(
                "embedding_weight_decay is not there with sparse_embeddings: true, because decay touches every row"
            )
        if not self.sparse_embeddings and self.embedding_optimizer != "adam":
            raise ValueError(
                f"embedding_optimizer: {self.embedding_optimizer} updates rows of the batch, so it needs sparse_embeddings: true"
            )
        return self
