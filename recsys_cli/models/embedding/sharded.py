"""Embedding tables of which each process keeps a part, for models that are larger than one device or one machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from recsys_cli.models.embedding.tables import Drawn, Embeddings, initial_rows, key_of
from recsys_cli.models.torchrec_releases import require_torchrec

if TYPE_CHECKING:
    from recsys_cli.models.embedding.sharding_plan import Rule
    from recsys_cli.models.embedding.shards import Shards


class ShardedEmbeddings(Embeddings):
    """Tables in parts, which TorchRec distributes over the processes of a run.

    There is nothing before `distribute`; whoever builds the optimizers calls it, because the optimizer of the tables is
    part of their backward pass. Their numbers are those that `Embeddings` draws: each process draws every table and keeps
    its part. A state dict has whole tables under the names that all placements share, on the first rank; making and reading
    it, as every lookup, is done by all processes together.
    """

    def _make(self, drawn: Mapping[str, Drawn]) -> None:
        self._drawn = dict(drawn)
        self._shards: Shards | None = None
        self._written: list[tuple[str, Tensor, Tensor]] = []

    @property
    def shards(self) -> Shards:
        """What there is after `distribute`."""
        assert self._shards is not None, "the tables are not distributed yet"
        return self._shards

    @property
    def elsewhere(self) -> int:
        """Numbers that are no parameters of this module."""
        return sum(one.num_rows * self.dims[name] for name, one in self._drawn.items())

    @torch.no_grad()
    def distribute(self, rule: Rule, options: Mapping[str, Any], device: torch.device) -> None:
        """Shard the tables over the processes of the default process group.

        Args:
            rule: The optimizer to fuse into the backward pass.
            options: Its parameter group; what is put there later, such as another `lr`, counts from the next step on.
            device: Where to compute.

        Raises:
            MissingExtraError: TorchRec is not there.
            ConfigError: The optimizer is not there for this device, or the tables fit nowhere.
        """
        require_torchrec(rule, device.type)
        from recsys_cli.models.embedding.shards import Shards

        shapes = {key_of(name): (one.num_rows, self.dims[name]) for name, one in self._drawn.items()}
        self._shards = Shards(shapes, rule, options, device)
        for name, one in self._drawn.items():
            self._shards.write(key_of(name), initial_rows(one.num_rows, self.dims[name], seed=one.seed))
        for name, ids, rows in self._written:
            self._shards.write(key_of(name), rows, ids=ids)
        self._written.clear()

    def table(self, name: str) -> Tensor:
        """Return a column's table, shape (cardinality, D), on the first rank; collective."""
        return self.shards.read(key_of(name))

    @torch.no_grad()
    def write_rows(self, name: str, ids: Tensor, rows: Tensor) -> None:
        """Replace some rows of a column's table; before the tables are distributed it is kept until then."""
        if self._shards is None:
            self._written.append((name, ids, rows))
        else:
            self._shards.write(key_of(name), rows, ids=ids)

    def rows(self, used: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return some rows of each table, shape (U, D); collective."""
        found = self.shards.rows({key_of(name): ids for name, ids in used.items()})
        return {name: found[key_of(name)] for name in used}

    def optimizer_state(self) -> dict[str, Tensor]:
        """Return what the optimizer remembers as "name of the parameter:field", whole on the first rank; collective."""
        shards = self.shards
        state = {
            f"{path}:{field}": shards.read(key, field) for key, path in self._paths() for field in shards.remembered
        }
        if shards.rule == "adam":
            state |= {f"{path}:step": torch.tensor(float(shards.steps)) for _, path in self._paths()}
        return state

    @torch.no_grad()
    def load_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `optimizer_state` returned, or what an optimizer of whole tables remembers.

        Raises:
            KeyError: It is the state of another optimizer or of other tables.
        """
        names = {path: key for key, path in self._paths()}
        for entry, values in state.items():
            path, _, field = entry.rpartition(":")
            if field == "step":
                self.shards.steps = int(values)
            elif field in self.shards.remembered:
                self.shards.write(names[path], values, field)
            else:
                raise KeyError(f"{self.shards.rule} remembers no {field!r}")

    def _paths(self) -> Iterator[tuple[str, str]]:
        return ((key_of(name), f"tables.{key_of(name)}.weight") for name in self.names)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:  # noqa: ARG002
        if self._shards is not None:
            destination.update({prefix + path: self._shards.read(key) for key, path in self._paths()})

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, local_metadata: Any, strict: bool,  # noqa: ARG002
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        known = {prefix + path: key for key, path in self._paths()}
        missing_keys += [name for name in known if name not in state_dict]
        unexpected_keys += [name for name in state_dict if name.startswith(prefix) and name not in known]
        for name, key in known.items():
            values = state_dict.get(name)
            if values is None:
                continue
            wanted = self.shards.shapes[key]
            if tuple(values.shape) != wanted:
                error_msgs.append(f"size mismatch for {name}: {tuple(values.shape)} in the checkpoint, {wanted} here")
            else:
                self.shards.write(key, values)
