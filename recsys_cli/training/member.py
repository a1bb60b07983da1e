"""Rank and world size from torchrun's environment variables, without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from recsys_cli.errors import ConfigError


@dataclass(frozen=True)
class Member:
    """Position of this process among those of a run; `local_rank` is its rank on this machine and the index of its GPU."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Member | None:
        """Read RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; None for a single process.

        Without the local variables, all processes are on one machine. A `ConfigError` if a variable is no number, or
        they contradict each other.
        """
        variables = os.environ if environment is None else environment
        if variables.get("WORLD_SIZE", "1") == "1" or "RANK" not in variables:
            return None
        try:
            rank, world_size = int(variables["RANK"]), int(variables["WORLD_SIZE"])
            local_rank = int(variables.get("LOCAL_RANK", rank))
            local_world_size = int(variables.get("LOCAL_WORLD_SIZE", world_size))
        except ValueError as error:
            raise _impossible(variables) from error
        if not (0 <= rank < world_size and 0 <= local_rank < local_world_size <= world_size):
            raise _impossible(variables)
        return cls(rank, world_size, local_rank, local_world_size)

    @property
    def is_first(self) -> bool:
        """Whether this is the first rank, the one with output."""
        return self.rank == 0


def _impossible(variables: Mapping[str, str]) -> ConfigError:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    text = ", ".join(f"{name}={variables[name]}" for name in names if name in variables)
    return ConfigError(
        f"the environment variables describe an impossible process: {text}",
        hint="start the processes with torchrun or `recsys train --devices N`, or unset RANK and WORLD_SIZE",
    )


def refuse_torchrun(reason: str) -> None:
    """Check that torchrun has not started several processes; a `ConfigError` with the reason."""
    if (member := Member.from_environment()) is not None:
        raise ConfigError(
            f"{reason}, and torchrun has started {member.world_size}",
            hint="run it without torchrun, then train the model it finds on all processes",
        )


def started_by_torchrun() -> bool:
    """Whether torchrun started this process; after a failure it starts all of them again, with the same command line."""
    return "TORCHELASTIC_RUN_ID" in os.environ
