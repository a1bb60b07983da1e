"""Embedding tables sharded over processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from recsys_cli.models.embedding.tables import Embeddings, TableInit, initial_rows, key_of
from recsys_cli.models.torchrec_releases import require_torchrec

if TYPE_CHECKING:
    from recsys_cli.models.embedding.sharding import Rule, Shards


class ShardedEmbeddings(Embeddings):
    """Tables sharded over the processes of a run by TorchRec.

    No table exists before `distribute`, called with the optimizers, because the tables' optimizer is part of their
    backward pass. Initial values and names in a state dict equal those of `Embeddings`: each process generates every
    table and keeps its shards; a state dict has whole tables on the first rank. Saving, loading and lookups are
    collective.

    Attributes:
        has_whole_state: Whether a state dict has the tables, gathered on the first rank.
    """

    has_whole_state = True

    def _make(self, inits: Mapping[str, TableInit]) -> None:
        self._inits = dict(inits)
        self._shards: Shards | None = None
        self._pending: list[tuple[str, Tensor, Tensor]] = []

    @property
    def shards(self) -> Shards:
        """The shards."""
        assert self._shards is not None, "the tables are not distributed yet"
        return self._shards

    @property
    def num_external_parameters(self) -> int:
        """Number of table elements outside this module's parameters."""
        return sum(one.num_rows * self.dims[name] for name, one in self._inits.items())

    @torch.no_grad()
    def distribute(self, rule: Rule, options: Mapping[str, Any], device: torch.device) -> None:
        """Shard the tables over the processes of the default process group, with an optimizer fused into the backward pass.

        `options` is its parameter group, read in each step; a changed `lr` takes effect in the next one.

        Raises:
            MissingExtraError: TorchRec is not installed.
            ConfigError: The optimizer does not support this device, or the tables exceed the memory.
        """
        require_torchrec(rule, device.type)
        from recsys_cli.models.embedding.sharding import Shards

        shapes = {key_of(name): (one.num_rows, self.dims[name]) for name, one in self._inits.items()}
        self._shards = Shards(shapes, rule, options, device)
        for name, one in self._inits.items():
            self._shards.write(key_of(name), initial_rows(one.num_rows, self.dims[name], seed=one.seed))
        for name, ids, rows in self._pending:
            self._shards.write(key_of(name), rows, ids=ids)
        self._pending.clear()

    def table(self, name: str) -> Tensor:
        """Return a column's table, shape (cardinality, D), on the first rank; collective."""
        return self.shards.read(key_of(name))

    @torch.no_grad()
    def write_rows(self, name: str, ids: Tensor, rows: Tensor) -> None:
        """Replace rows of a column's table; before `distribute` the write is deferred."""
        if self._shards is None:
            self._pending.append((name, ids, rows))
        else:
            self._shards.write(key_of(name), rows, ids=ids)

    def rows(self, used: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return rows of each table, shape (U, D); collective."""
        rows = self.shards.rows({key_of(name): ids for name, ids in used.items()})
        return {name: rows[key_of(name)] for name in used}

    def optimizer_state(self) -> dict[str, Tensor]:
        """Return the optimizer state that is equal on all processes, as "name of the parameter:field"."""
        if self.shards.rule != "adam":
            return {}
        return {f"{path}:step": torch.tensor(float(self.shards.steps)) for _, path in self._paths()}

    def local_shards(self) -> Iterator[tuple[str, int, int, Tensor]]:
        """Yield this process's part of weights, by parameter, and state, by "parameter:field": first row and column, values."""
        for key, path in self._paths():
            for field in ("weight", *self.shards.state_fields):
                entry = path if field == "weight" else f"{path}:{field}"
                yield from ((entry, *found) for found in self.shards.local(key, field))

    @torch.no_grad()
    def load_shard(self, entry: str, row: int, column: int, values: Tensor) -> None:
        """Load what this process has of a shard, as of `local_shards` with any number of processes."""
        path, _, field = (entry, "", "weight") if entry.endswith(".weight") else entry.rpartition(":")
        self.shards.write({path: key for key, path in self._paths()}[path], values, field, row=row, column=column)

    @torch.no_grad()
    def load_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Load `optimizer_state`, or the state of an optimizer of whole tables; a `KeyError` for any other."""
        names = {path: key for key, path in self._paths()}
        for entry, values in state.items():
            path, _, field = entry.rpartition(":")
            if field == "step":
                self.shards.steps = int(values)
            elif field in self.shards.state_fields:
                self.shards.write(names[path], values, field)
            else:
                raise KeyError(f"{self.shards.rule} has no state {field!r}")

    def _paths(self) -> Iterator[tuple[str, str]]:
        return ((key_of(name), f"tables.{key_of(name)}.weight") for name in self.names)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:  # noqa: ARG002
        if self._shards is not None and self.has_whole_state:
            destination.update({prefix + path: self._shards.read(key) for key, path in self._paths()})

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, local_metadata: Any, strict: bool,  # noqa: ARG002
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        keys = {prefix + path: key for key, path in self._paths()}
        missing_keys += [name for name in keys if name not in state_dict]
        unexpected_keys += [name for name in state_dict if name.startswith(prefix) and name not in keys]
        for name, key in keys.items():
            values = state_dict.get(name)
            if values is None:
                continue
            shape = self.shards.shapes[key]
            if tuple(values.shape) != shape:
                error_msgs.append(f"size mismatch for {name}: {tuple(values.shape)} in the checkpoint, {shape} here")
            else:
                self.shards.write(key, values)
