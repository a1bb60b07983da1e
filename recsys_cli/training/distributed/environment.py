"""What torchrun, or whoever starts several processes of one run, tells each of them through its environment. No torch here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from recsys_cli.errors import ConfigError


@dataclass(frozen=True)
class Member:
    """Which one of the processes that train together this is.

    Attributes:
        rank: Its number, from 0.
        world_size: How many there are, on all machines.
        local_rank: Its number among those on this machine, which is that of its GPU.
        local_world_size: How many are on this machine.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Member | None:
        """Read RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; None where this process is alone.

        Without the last two, all processes are taken to be on one machine.

        Raises:
            ConfigError: They are not numbers, or do not go together.
        """
        given = os.environ if environment is None else environment
        if given.get("WORLD_SIZE", "1") == "1" or "RANK" not in given:
            return None
        try:
            rank, world_size = int(given["RANK"]), int(given["WORLD_SIZE"])
            local_rank = int(given.get("LOCAL_RANK", rank))
            local_world_size = int(given.get("LOCAL_WORLD_SIZE", world_size))
        except ValueError as error:
            raise _impossible(given) from error
        if not (0 <= rank < world_size and 0 <= local_rank < local_world_size <= world_size):
            raise _impossible(given)
        return cls(rank, world_size, local_rank, local_world_size)

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and speaks for all."""
        return self.rank == 0


def _impossible(given: Mapping[str, str]) -> ConfigError:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    found = ", ".join(f"{name}={given[name]}" for name in names if name in given)
    return ConfigError(
        f"the environment names an impossible process: {found}",
        hint="start the processes with torchrun, or with recsys train --devices N; or unset RANK and WORLD_SIZE",
    )
