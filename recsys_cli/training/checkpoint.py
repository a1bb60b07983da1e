"""Files of a training run: metrics.jsonl, and the `last` and `best` checkpoints with the full training state.

`last` has sharded tables in files of their own, one of each process. Their names, in its header, are new each time: after a kill
at any moment it is whole.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from recsys_cli.errors import TrainingError
from recsys_cli.models.embedding import ShardedEmbeddings
from recsys_cli.models.weights import PREFIX, checksum_of_tensors
from recsys_cli.training.progress import EpochEnded, Stepped, TrainingEvent
from recsys_cli.training.ranks import Ranks
from recsys_cli.training.trackers import Trackers
from recsys_cli.workspace import TrainedRun, naming, read_text, replacing, whole, write_text

OPTIMIZER = "optimizer."
"""Prefix of the optimizers' tensors in a checkpoint: "optimizer.parameter:field"."""
_META, _CHECKSUM = "recsys", "checksum"
"""Keys of the file header."""
_SHARDS = "shards"
"""Key of the names of shard files."""


class Shard(NamedTuple):
    """Part of a tensor of a checkpoint, from a row and column on."""

    name: str
    row: int
    column: int
    values: Tensor

    @property
    def range(self) -> tuple[slice, ...]:
        """Position in the whole tensor."""
        sizes = zip((self.row, self.column), self.values.shape, strict=False)
        return tuple(slice(first, first + size) for first, size in sizes)


@dataclass(frozen=True)
class Checkpoint:
    """Content of a checkpoint file: tensors by name, and plain values, stored as JSON in the file header.

    Sharded tensors are on the device meta, and have their values in `shards`.
    """

    tensors: dict[str, Tensor]
    meta: dict[str, Any]
    shards: tuple[Shard, ...] = ()

    def whole(self) -> dict[str, Tensor]:
        """Return all tensors with their values."""
        tensors = {
            name: torch.empty_like(one, device="cpu") if one.is_meta else one for name, one in self.tensors.items()
        }
        for shard in self.shards:
            tensors[shard.name][shard.range] = shard.values
        return tensors

    def save(self, path: Path) -> None:
        """Write atomically."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        meta = json.dumps(self.meta)
        with replacing(path) as partial:
            save_file(tensors, partial, metadata={_META: meta, _CHECKSUM: _checksum(tensors, meta)})

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read a file of `save`; a `DataError` for other files and a wrong checksum."""
        with whole(path, hint="recsys train --force"), safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            header = file.metadata() or {}
            if header.get(_CHECKSUM) != _checksum(tensors, header[_META]):
                raise ValueError("its content is not what was written")
            meta, shards = json.loads(header[_META]), []
            for other in meta.get(_SHARDS, ()):
                for key, values in cls.load(path.with_name(f"{other}.safetensors")).tensors.items():
                    row, column, name = key.split(" ", 2)
                    shards.append(Shard(name, int(row), int(column), values))
        for name, parts in groupby(sorted(shards, key=attrgetter("name")), attrgetter("name")):
            ends = zip(*([part.stop for part in shard.range] for shard in parts), strict=True)
            tensors[name] = torch.empty([max(end) for end in ends], device="meta")
        return cls(tensors, meta, tuple(shards))


def _checksum(tensors: Mapping[str, Tensor], meta: str) -> str:
    # An unfinished run has no manifest with a checksum of the file.
    return checksum_of_tensors(tensors, zlib.crc32(meta.encode()))


def weights(model: nn.Module, *, whole: bool = True) -> dict[str, Tensor]:
    """Return the model's tensors by name in a checkpoint, without sharded tables if not `whole`."""
    for _, module in sharded_tables(model):
        module.has_whole_state = whole
    return {PREFIX + name: tensor for name, tensor in model.state_dict().items()}


def local_shards(model: nn.Module) -> tuple[Shard, ...]:
    """Return this process's shards of tables and of their optimizer's state."""
    return tuple(
        Shard(f"{PREFIX if entry.endswith('.weight') else OPTIMIZER}{prefix}{entry}", row, column, values)
        for prefix, module in sharded_tables(model)
        for entry, row, column, values in module.local_shards()
    )


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor with a NaN or infinite value, or None."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel():
            low, high = torch.aminmax(tensor.detach())  # propagates NaN, without the copy of torch.isfinite
            if not (torch.isfinite(low) and torch.isfinite(high)):
                return name
    return None


def optimizer_state(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Tensor]:
    """Return the optimizers' tensors by parameter and key."""
    sharded = {
        f"{OPTIMIZER}{path}{key}": value
        for path, module in sharded_tables(model)
        for key, value in module.optimizer_state().items()
    }
    return sharded | {
        f"{OPTIMIZER}{name}:{key}": value
        for name, parameter in model.named_parameters()
        for optimizer in optimizers
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def sharded_tables(model: nn.Module) -> list[tuple[str, ShardedEmbeddings]]:
    """Return the sharded tables, which update themselves, and the prefixes of their parameter names."""
    tables = [(path, module) for path, module in model.named_modules() if isinstance(module, ShardedEmbeddings)]
    return [(f"{path}." if path else "", module) for path, module in tables]


def restore(checkpoint: Checkpoint, model: nn.Module, optimizers: list[Optimizer]) -> None:
    """Load the state of the model and its optimizers; a `TrainingError` if it is of another model or other optimizers."""
    tables = sharded_tables(model)
    tensors = checkpoint.tensors if tables else checkpoint.whole()
    try:
        model.load_state_dict({k.removeprefix(PREFIX): v for k, v in tensors.items() if k.startswith(PREFIX)})
        restore_optimizers(tensors, model, optimizers)
        for shard in checkpoint.shards if tables else ():
            name = shard.name.removeprefix(PREFIX).removeprefix(OPTIMIZER)
            prefix, module = next(table for table in tables if name.startswith(table[0]))
            module.load_shard(name.removeprefix(prefix), shard.row, shard.column, shard.values)
    except (RuntimeError, KeyError) as error:
        raise TrainingError(f"the checkpoint does not fit the model: {error}", hint="recsys train --force") from error


def restore_optimizers(tensors: Mapping[str, Tensor], model: nn.Module, optimizers: list[Optimizer]) -> None:
    """Load the optimizers' state of a checkpoint; other tensors are ignored. A `KeyError` for unknown parameters."""
    owners = {
        name: (optimizer, parameter)
        for name, parameter in model.named_parameters()
        for optimizer in optimizers
        for group in optimizer.param_groups
        if any(parameter is one for one in group["params"])
    }
    state = {key.removeprefix(OPTIMIZER): tensor for key, tensor in tensors.items() if key.startswith(OPTIMIZER)}
    for path, module in sharded_tables(model):
        keys = [key for key in state if key.startswith(path)]
        module.load_optimizer_state({key.removeprefix(path): state.pop(key) for key in keys})
    for key, tensor in state.items():
        name, _, field = key.rpartition(":")
        optimizer, parameter = owners[name]
        optimizer.state[parameter][field] = tensor.to(parameter.device, copy=True)  # out of the memory-mapped file


_LINES = 100
"""Approximate number of step lines per epoch in metrics.jsonl."""


class Resumable(Protocol):
    """A training with a state in checkpoints."""

    def state(self) -> Checkpoint:
        """Return the full training state."""

    def weights(self) -> dict[str, Tensor]:
        """Return the validated weights by name in a checkpoint."""

    def restore(self, saved: Checkpoint) -> None:
        """Load a training state."""


class Recorder:
    """Writes metrics and checkpoints of a run, on the first rank, and passes metrics to trackers.

    The `last` checkpoint, written after every epoch and some steps, stores the number of lines in metrics.jsonl: a
    resumed run neither repeats nor loses a line. It also has `key`, a hash of the inputs of the run, as an unfinished
    run has no manifest.
    """

    def __init__(
        self, run: TrainedRun, training: Resumable, *,
        key: str, checkpoint_steps: int, trackers: Trackers, ranks: Ranks, is_sharded: bool,
    ) -> None:  # fmt: skip
        self._run = run
        self.trackers = trackers
        self._key = key
        self._training = training
        self._ranks = ranks
        self._is_sharded = is_sharded
        self._writes = ranks.is_first
        self._checkpoint_steps = checkpoint_steps
        self._lines = 0
        self._since = (0, 0.0)  # rows and loss sum of the epoch at the previous line

    def resume(self) -> dict[str, int]:
        """Restore the training and truncate the metrics to the state of `last`; return the last step of each event before."""
        if self._run.checkpoint("last").is_file():  # missing if the run ended before the first checkpoint
            saved = Checkpoint.load(self._run.checkpoint("last"))
            self._training.restore(saved)
            self._lines, self._since = int(saved.meta["lines"]), tuple(saved.meta["since"])
        if not (self._writes and self._run.metrics.is_file()):
            return {}
        lines = read_text(self._run.metrics, hint="recsys train --force").splitlines(keepends=True)
        write_text(self._run.metrics, "".join(lines[: self._lines]))
        return _last_steps(lines)

    def record(self, event: TrainingEvent, *, steps_per_epoch: int) -> None:
        """Write metrics and checkpoints after an event."""
        if isinstance(event, Stepped):
            if event.step % max(1, steps_per_epoch // _LINES) == 0:
                self._write_step(event)
            if event.step % self._checkpoint_steps == 0:
                self.save_last()
        elif isinstance(event, EpochEnded):
            self._write({"event": "epoch", **asdict(event.record)})
            self._since = (0, 0.0)
            if event.best:
                meta = {"epoch": event.record.epoch, "metrics": asdict(event.record)}
                self._save("best", Checkpoint(self._training.weights(), meta))
            self.save_last()

    def save_last(self) -> None:
        """Write the `last` checkpoint."""
        state = self._training.state()
        meta = {**state.meta, "key": self._key, "lines": self._lines, "since": self._since}
        names = self._save_shards(state.shards) if self._is_sharded else []  # no collective after the loss of a rank
        self._save("last", Checkpoint(state.tensors, {**meta, _SHARDS: names} if names else meta))
        folder = self._run.checkpoint("last").parent
        for old in (*folder.glob("last-*"), *folder.glob(".last-*")) if self._writes else ():
            if old.stem not in names:  # of the save before, or of a killed one: now no rank writes
                old.unlink()

    def _save_shards(self, shards: Sequence[Shard]) -> list[str]:
        """Write the shards of each rank to a new file; return the names of all, once they are written."""
        start = self._ranks.from_first(uuid.uuid4().hex[:8])
        names = [f"last-{start}-{rank}" for rank in range(self._ranks.world_size)]
        path = self._run.checkpoint(names[self._ranks.rank])
        Checkpoint({f"{one.row} {one.column} {one.name}": one.values for one in shards}, {}).save(path)
        self._ranks.any(False)  # a barrier
        return names

    def _write_step(self, event: Stepped) -> None:
        rows, loss_sum = self._since
        self._since = (event.rows, event.loss * event.rows)
        self._write({
            "event": "step",
            "epoch": event.epoch,
            "step": event.step,
            "learning_rate": event.learning_rate,
            "loss": (self._since[1] - loss_sum) / max(event.rows - rows, 1),
            "rows_per_second": event.rows / event.seconds if event.seconds else None,
            "waiting_share": event.waiting / event.seconds if event.seconds else None,
        })  # fmt: skip

    def _save(self, which: str, saved: Checkpoint) -> None:
        if self._writes:
            saved.save(self._run.checkpoint(which))

    def _write(self, line: dict[str, Any]) -> None:
        if not self._writes:
            return
        self._run.folder.mkdir(parents=True, exist_ok=True)
        with naming(self._run.metrics), self._run.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._lines += 1
        self.trackers.log(line)


def _last_steps(lines: Iterable[str]) -> dict[str, int]:
    steps: dict[str, int] = {}
    for text in lines:
        with suppress(ValueError, LookupError, TypeError):
            line = json.loads(text)
            steps[line["event"]] = line["step"]
    return steps
