"""The `train` section: optimizer, schedule, loss, precision, checkpoints and devices of a training run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from recsys_cli.config.schedule import Constant, Schedule
from recsys_cli.config.section import MAX_COUNT, MAX_SEED, Section
from recsys_cli.errors import ConfigError
from recsys_cli.metrics.named import BINARY
from recsys_cli.registry import TRACKERS, lookup

Device = Literal["auto", "cpu", "cuda"]


class Recent(Section):
    """The rows of a continued training: those after a time, and a sample of the earlier ones against forgetting."""

    after: float
    """Time in seconds since 1970."""
    history: float = Field(3.0, ge=0)
    """Sampled earlier rows per later row; of models trained on users, users without and with later rows."""


class TrainConfig(Section):
    """Training of a model."""

    # data and duration
    continue_from: str | None = None
    """Warm start: name of a finished run of this workspace. The data may have grown: rows of embeddings and of the optimizers'
    state are matched by value, and new values start near the row of unseen ones. Other optimizers start anew. Set by
    `recsys train --continue RUN`."""
    recent: Recent | None = Field(None, exclude_if=lambda recent: recent is None)  # absent from keys of runs without it
    """Train on recent rows and a sample of the others; None: on all. Set by `recsys update`."""
    epochs: int = Field(1, ge=1, le=MAX_COUNT)
    """Passes over the training rows."""
    batch_size: Annotated[int, Field(ge=1, le=MAX_COUNT)] | Literal["auto"] = 32_768
    """Global batch size over all processes: rows, or users for models trained on users. `auto` is for the latter only: the
    largest of 32, 64, 128 and 256 with at least 600 steps per epoch, at least 32."""
    seed: int = Field(42, ge=0, le=MAX_SEED)
    """Random seed of the initial weights, the row order and the dropout."""

    # optimizer and schedule
    sparse_embeddings: bool = False
    """Update only the embedding rows of the batch, by `embedding_optimizer`; AdamW updates the other parameters.
    Otherwise AdamW updates all parameters."""
    embedding_optimizer: Literal["adam", "adagrad", "sgd"] = "adam"
    """Optimizer of `sparse_embeddings`: `adam` (SparseAdam; state of twice the tables), `adagrad` (row-wise, as in FBGEMM and
    DLRM; state of one number per row) or `sgd` (no state). Initial `embedding_learning_rate`: `learning_rate` for adam, ten times
    that for adagrad. For sgd start with 3 at a batch of 1,024 rows; larger batches need more, because the loss is a mean."""
    learning_rate: float = Field(0.01, gt=0)
    """Learning rate of all parameters; with `embedding_learning_rate`, of all except the embeddings."""
    embedding_learning_rate: float | None = Field(None, gt=0)
    """Learning rate of the embedding tables. None: `learning_rate`."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay (AdamW) of all parameters except the embeddings."""
    embedding_weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay of the embedding tables. Not available with `sparse_embeddings`."""
    scale_learning_rate: Literal["none", "linear", "sqrt"] = "none"
    """Scale all learning rates by r = `batch_size` / `reference_batch_size` (`linear`, for SGD: Goyal et al., 2017) or by sqrt(r)
    (`sqrt`, for Adam: Malladi et al., 2022). The number of processes does not change the rates."""
    reference_batch_size: int = Field(32_768, ge=1, le=MAX_COUNT)
    """Batch size at which `scale_learning_rate` leaves the learning rates unchanged."""
    schedule: Schedule = Constant()
    """Learning rate schedule: constant, cosine, step or plateau, each with `warmup_steps`."""
    max_grad_norm: float | None = Field(None, gt=0)
    """Clip the gradient to this Euclidean norm over all parameters. None: no clipping."""
    gradient_accumulation_steps: int = Field(1, ge=1, le=MAX_COUNT)
    """Compute each batch in this many micro-batches and add up their gradients: less memory, the same step. Only BatchNorm
    changes, because its statistics are per micro-batch."""

    # loss and weight averaging
    positive_weight: Literal["balanced"] | Annotated[float, Field(gt=0)] | None = None
    """Weight of positive rows in the training loss; negatives have weight 1. `balanced` gives positives and negatives of train the
    same total weight. With several labels, the main label sets the weight of a row. Models of positives alone, such as mf and
    sasrec, have no use for it."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Label smoothing s of the training labels: y becomes (1 - s) y + s / 2. Reduces overconfidence."""
    ema_decay: float | None = Field(None, gt=0, lt=1)
    """Maximum decay of an exponential moving average of the weights, such as 0.999 (lower in the first steps). Validation and
    `best` use the average. With `sparse_embeddings` the tables are not averaged: averaging touches every row."""

    # computation
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """fp32, autocast to bf16, or autocast to fp16 with loss scaling. `auto`: bf16 if native to the hardware, otherwise fp32."""
    tf32: bool = False
    """Multiply fp32 matrices on the tensor cores of a GPU, with 10 bits of mantissa. No effect on a CPU."""
    compile: bool = False
    """Compile the loss with torch.compile. Compilation takes seconds to minutes (reported); compare the rows per second. Needs a
    C++ compiler, and Triton on a GPU."""

    # validation, checkpoints and tracking
    monitor: str = BINARY.default.name
    """Validation metric that selects the best epoch: `loss` or one of `recsys ls metrics`. Default: log_loss, or rmse of numbers.
    Ranking metrics use a sample of 2,000 users of train; after a split by user, users of valid if the model supports fold-in.
    An undefined metric falls back to the loss, then to the last epoch; a model's own default to auc, with a warning."""
    early_stopping: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Patience: stop after this many epochs without improvement of `monitor`. Without a valid split the best number of epochs is
    found so on rows held out of train, and then all of train is fitted. None: train all epochs."""
    checkpoint_steps: int = Field(1_000, ge=1, le=MAX_COUNT)
    """Steps between two `last` checkpoints; another one is written after every epoch."""
    trackers: tuple[str, ...] = ("tensorboard",)
    """Experiment trackers: `tensorboard` (event files in the run's folder), `mlflow` (a store in the workspace, or
    MLFLOW_TRACKING_URI), `wandb` (offline) or a plugin's tracker. metrics.jsonl is always written."""

    # hardware
    device: Device = "auto"
    """Device of the training. `auto`: a GPU if available."""
    devices: int = Field(1, ge=1, le=MAX_COUNT)
    """Data-parallel processes on this machine, each with its own GPU or a share of the CPU cores. They share the rows of each
    step: the result is equal within rounding, except for random numbers of each process. torchrun overrides this."""
    memory_mib: int = Field(4_096, ge=1, le=MAX_COUNT)
    """Memory budget of the loader in MiB per process. A larger split is streamed from disk."""

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
        """Factor of `scale_learning_rate` for the learning rates."""
        exponent = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}[self.scale_learning_rate]
        return float((self.rows_of_a_step / self.reference_batch_size) ** exponent)

    @property
    def rows_of_a_step(self) -> int:
        """`batch_size` as a number of rows.

        Raises:
            ConfigError: `batch_size` is `auto`, and the model is not trained on users.
        """
        if self.batch_size == "auto":
            raise ConfigError(
                "train.batch_size: auto needs a model trained on users, such as sasrec",
                hint="set the rows of a batch, such as train.batch_size=1024",
            )
        return self.batch_size

    def searches_epochs(self, *, has_valid: bool) -> bool:
        """Whether rows of train are held out to find the number of epochs; a warm start has already seen them."""
        return self.early_stopping is not None and self.continue_from is None and not has_valid

    @model_validator(mode="after")
    def _rows_have_rules_of_their_own(self) -> TrainConfig:
        if self.sparse_embeddings and self.embedding_weight_decay:
            raise ValueError(
                "embedding_weight_decay is not available with sparse_embeddings: true, because decay touches every row"
            )
        if not self.sparse_embeddings and self.embedding_optimizer != "adam":
            raise ValueError(
                f"embedding_optimizer: {self.embedding_optimizer} updates only the rows of the batch: set sparse_embeddings: true"
            )
        return self
