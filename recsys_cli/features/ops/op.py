"""What all ops share: frozen, no unknown options, named in the config by `op`, and honest about what they read and write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from recsys_cli.errors import ConfigError
from recsys_cli.features.spec import Spec

Phase = Literal["rows", "draw", "columns"]


class Op(BaseModel):
    """A description of one step; each engine has a table from its type to what computes it.

    Attributes:
        phase: `rows` decides which interactions there are, before the split; `draw` adds rows to the splits; `columns`
            computes columns of rows that are there, after the split.
        fitted: Whether it learns from train.
        columnwise: Whether each of its `columns` is computed from itself alone, so that they may live in different tables.
        acts: Whether engines have anything to do; False for an op that only describes columns.
        replaces: Whether only the columns that it writes are left after it.
        learns_from_drawn: Whether it learns from rows that NegativeSampling drew, too.
        numbers_rows: Whether it tells rows of train apart by a number; then it works on the interactions, wherever its
            columns live.
        drops_only: Whether all that it does is to leave rows out, so that new rows, which are all wanted, go without it.
        train_only: Whether it leaves out rows of train alone, where the splits are given as files.
        format: Version of what it makes. A fix that changes rows or values raises it: prepared data of the version before is
            then made again.
        modules: Of an op of another package, the modules that compute it: by name of an engine, "aggregator" or "filter".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    phase: ClassVar[Phase] = "columns"
    fitted: ClassVar[bool] = False
    columnwise: ClassVar[bool] = False
    acts: ClassVar[bool] = True
    replaces: ClassVar[bool] = False
    learns_from_drawn: ClassVar[bool] = False
    numbers_rows: ClassVar[bool] = False
    drops_only: ClassVar[bool] = False
    train_only: ClassVar[bool] = False
    format: ClassVar[int] = 1
    modules: ClassVar[Mapping[str, str]] = {}

    @property
    def name(self) -> str:
        """How it is called in a config."""
        return type(self).__name__

    @property
    def title(self) -> str:
        """How a message names it."""
        return self.name

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return tuple(getattr(self, "columns", ()))

    @property
    def reads_to_apply(self) -> tuple[str, ...]:
        """The columns that it needs once it has learnt: new rows may lack the others, such as a target."""
        return self.reads

    @property
    def separable(self) -> bool:
        """Whether parts of it, each for some of its columns, may run in different tables and passes."""
        return self.columnwise

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of files that it reads, relative to the working directory: their content is part of what it means."""
        return ()

    @property
    def encodes(self) -> tuple[str, ...]:
        """The columns that it replaces by ids of a vocabulary; each has a `vocabulary_of` and a `counts_of`."""
        return ()

    @property
    def vocabularies(self) -> tuple[str, ...]:
        """Names of the vocabularies that it learns: those of its states that are written to vocab/."""
        return ()

    @property
    def joined_by(self) -> str | None:
        """The key of the table that it joins; None for an op that joins none."""
        return None

    @property
    def renames(self) -> Mapping[str, str]:
        """New names of columns by their old ones."""
        return {}

    @property
    def may_drop(self) -> tuple[str, ...]:
        """The columns that may be gone once train is known."""
        return ()

    @property
    def expressions(self) -> Mapping[str, str]:
        """Expressions of LambdaOp for the columns that it computes of others, row by row."""
        return {}

    @property
    def casts(self) -> Mapping[str, str]:
        """Expressions for the exact values of the columns that it casts to whole numbers."""
        return {}

    @property
    def times(self) -> tuple[str, ...]:
        """The columns that have to hold times."""
        return ()

    @property
    def marks_samples(self) -> str | None:
        """The column that tells sampled rows from interactions; None for an op that samples none."""
        return None

    @property
    def reads_all(self) -> bool:
        """Whether it reads all columns of the interactions, whichever there are."""
        return False

    @property
    def learns(self) -> tuple[str, ...]:
        """Names of the tables that a part of train tells: one per column, unless the op says otherwise."""
        return self.reads if self.fitted else ()

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the tables that it knows in the end."""
        return self.learns

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the columns that it writes; None for a column that is no longer there.

        Args:
            inputs: The columns that it reads.

        Raises:
            ConfigError: It cannot work on them; the message needs no name of the op.
        """
        raise NotImplementedError

    def learnt(self, outputs: dict[str, Spec | None], state: Mapping[str, pa.Table]) -> dict[str, Spec | None]:
        """Describe the columns again when what was learnt is known, such as how many values a vocabulary has."""
        del state
        return outputs

    def only(self, columns: tuple[str, ...]) -> Self:
        """Return the op for some of its columns."""
        return self.model_copy(update={"columns": columns})


def numbers(inputs: Mapping[str, Spec]) -> Mapping[str, Spec]:
    """Return the columns if an op can calculate with all of them.

    Raises:
        ConfigError: One of them holds something else.
    """
    for name, spec in inputs.items():
        if not spec.is_number:
            held = "encoded ids" if spec.categorical else spec.element
            raise ConfigError(f"{name!r} holds {held}; numbers are needed")
    return inputs


def scalars(inputs: Mapping[str, Spec]) -> Mapping[str, Spec]:
    """Return the columns if none of them holds lists.

    Raises:
        ConfigError: One does.
    """
    for name, spec in inputs.items():
        if spec.ragged:
            raise ConfigError(f"{name!r} holds a list in each row; single values are needed")
    return inputs


def lists(inputs: Mapping[str, Spec]) -> Mapping[str, Spec]:
    """Return the columns if all of them hold lists.

    Raises:
        ConfigError: One does not.
    """
    for name, spec in inputs.items():
        if not spec.ragged:
            raise ConfigError(f"{name!r} holds a single value in each row; lists are needed")
    return inputs


def calculated(inputs: Mapping[str, Spec], **changes: Any) -> dict[str, Spec | None]:
    """Describe columns of numbers that an op overwrites: float64 between ops, float32 when written."""
    return {
        name: Spec(spec.holding(pa.float64()), tags=spec.tags, lengths=spec.lengths, **changes)
        for name, spec in inputs.items()
    }
