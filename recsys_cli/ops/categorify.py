"""Categorical values to vocabulary ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import AfterValidator, Field, model_validator

from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import COUNTS, REST
from recsys_cli.features.schema import FIRST
from recsys_cli.features.spec import Spec
from recsys_cli.ops.fields import FrozenDict, Names
from recsys_cli.ops.op import Op

MAX_BUCKETS = 2**31 - 1 - FIRST
"""Maximum number of hash buckets: the int32 ids minus the reserved ones."""


class Categorify(Op):
    """Replace values by ids: 0 padding, 1 null, 2 unseen, then the vocabulary from 3 on.

    Fitted: one vocabulary per column on train, ordered by (count descending, value ascending); text by UTF-8 bytes. A
    joined column is counted over the train interactions. Without values in train the vocabulary is empty: cardinality 3.
    Nulls: null and NaN become 1; values outside the vocabulary become 2.
    Lists: element by element; a null list becomes an empty one.
    Output: int32, named as the input; lists stay lists. Train contains no 0, and no 2 unless `freq_threshold`, `max_size`
    or `vocabs` excludes a value.

    With `num_buckets` an unseen value becomes one of the last ids instead of 2, chosen by a hash of the value: 3 + V to
    2 + V + num_buckets for V values. NVTabular places the buckets before the vocabulary; here the vocabulary always
    starts at 3 and id 2 is unused. A bucket cannot be decoded to a value.
    """

    fitted: ClassVar[bool] = True
    columnwise: ClassVar[bool] = True

    op: Literal["Categorify"] = "Categorify"
    columns: Annotated[Names, Field(min_length=1)]
    """Columns to encode, each with its own vocabulary unless `joint`."""
    freq_threshold: int = Field(default=0, ge=0)
    """Minimum count in train; rarer values are excluded from the vocabulary, as unseen."""
    max_size: int | None = None
    """Maximum rows of the embedding table, with the reserved ids and the buckets; the most frequent values are kept."""
    num_buckets: int = Field(default=0, ge=0, le=MAX_BUCKETS)
    """Number of hash buckets for unseen values, after the vocabulary; 0 maps them to id 2."""
    joint: bool = False
    """Share one vocabulary between all columns, counted over all of them, with their names joined by "_" as its name. The
    columns need the same type and the same table."""
    vocabs: Annotated[dict[str, str], AfterValidator(FrozenDict)] = FrozenDict()
    """Given vocabularies: path by column (by vocabulary if `joint`). A Parquet or CSV file, with the values in column `value`
    or the first column, or a text file with one value per line. Ids follow the file; counts are those of train."""

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        if self.max_size is not None and self.max_size < FIRST + self.num_buckets:
            raise ValueError(
                f"max_size {self.max_size} is too small for {FIRST} reserved rows and {self.num_buckets} buckets"
            )
        if self.joint and len(self.columns) < 2:
            raise ValueError("joint needs at least two columns")
        if unknown := sorted(set(self.vocabs) - set(self.vocabularies)):
            raise ValueError(f"vocabs names {unknown}; the vocabularies are {list(self.vocabularies)}")
        if self.vocabs and (self.freq_threshold or self.max_size is not None):
            raise ValueError(
                "a given vocabulary is used completely; move freq_threshold and max_size to a Categorify without vocabs"
            )
        return self

    @property
    def separable(self) -> bool:
        """False for columns with one vocabulary."""
        return not self.joint

    @property
    def encodes(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def vocabularies(self) -> tuple[str, ...]:
        """Names of the vocabularies."""
        return tuple(dict.fromkeys(map(self.vocabulary_of, self.columns)))

    @property
    def learns(self) -> tuple[str, ...]:
        """The columns, each counted on its own."""
        return tuple(dict.fromkeys(self.columns))

    @property
    def states(self) -> tuple[str, ...]:
        """Vocabularies, and the second and third table of each column."""
        suffixes = (REST, COUNTS) if self.joint else (REST,)
        return (*self.vocabularies, *(column + suffix for column in self.learns for suffix in suffixes))

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the given vocabularies."""
        return tuple(self.vocabs.values())

    @property
    def buckets(self) -> int:
        """Number of hash buckets."""
        return self.num_buckets

    @property
    def leaves_out(self) -> bool:
        """Whether train may contain values outside the vocabulary."""
        return bool(self.freq_threshold or self.max_size is not None or self.vocabs)

    def vocabulary_of(self, column: str) -> str:
        """Return the name of a column's vocabulary."""
        return "_".join(self.columns) if self.joint else column

    def counts_of(self, column: str) -> str:
        """Return the name of the state with the `count` of each vocabulary value in a column of train."""
        return column + COUNTS if self.joint else column

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the ids; a `ConfigError` for different types in one vocabulary."""
        if self.joint:
            _check_types(inputs)
        return {
            name: spec.computed(
                pa.int32(),
                categorical=True,
                vocabulary=self.vocabulary_of(name),
                dtype="int32",
                buckets=self.num_buckets,
            )
            for name, spec in inputs.items()
        }

    def fitted_output(self, name: str, spec: Spec, state: Mapping[str, pa.Table]) -> Spec:
        """Add the size of the embedding table."""
        size = state[self.vocabulary_of(name)].num_rows
        return replace(spec, cardinality=FIRST + size + self.num_buckets)


def _check_types(inputs: Mapping[str, Spec]) -> None:
    kinds = {name: spec.element for name, spec in inputs.items()}
    # The common type of uint64 and a signed integer is a float.
    mixable = all(pa.types.is_integer(kind) and not pa.types.is_uint64(kind) for kind in kinds.values())
    if len(set(kinds.values())) > 1 and not mixable:
        held = ", ".join(f"{name} holds {kind}" for name, kind in kinds.items())
        raise ConfigError(f"columns of a joint vocabulary need one type; {held}")
