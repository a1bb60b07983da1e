"""Categorify: values to small integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import AfterValidator, Field, model_validator

from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import COUNTS, REST
from recsys_cli.features.ops.fields import FrozenDict, Names
from recsys_cli.features.ops.op import Op
from recsys_cli.features.schema import FIRST
from recsys_cli.features.spec import Spec

MAX_BUCKETS = 2**31 - 1 - FIRST
"""So many rows an embedding table can have behind the reserved ones: ids are int32."""


class Categorify(Op):
    """Replace values by ids: 0 padding, 1 null, 2 unseen, then the vocabulary from 3 on.

    Fitted: one vocabulary per column, on the train split: distinct values by (count descending, value ascending);
    text is ordered by its UTF-8 bytes. A joined column is counted over the train interactions, as if joined.
    Nulls and NaN become 1, values that the vocabulary does not have become 2. A list is encoded element by element and keeps
    its length; a null list is an empty list. Empty and all-null input gives an empty vocabulary, hence cardinality 3.
    Output: int32, named as the input; a list stays a list. Ids 0 and 2 never come out of the train split itself, unless a
    value is left out of the vocabulary by `freq_threshold`, `max_size` or `vocabs`.

    With `num_buckets` an unseen value becomes one of the last ids instead of 2: for a vocabulary of V values these are
    3 + V to 2 + V + num_buckets, chosen by a hash of the value. NVTabular has them before the vocabulary; here a
    vocabulary starts at 3 always, and id 2 stays without a value. Decoding a bucket gives no value back.
    """

    fitted: ClassVar[bool] = True
    columnwise: ClassVar[bool] = True

    op: Literal["Categorify"] = "Categorify"
    columns: Annotated[Names, Field(min_length=1)]
    """Columns to encode, each with its own vocabulary unless `joint`."""
    freq_threshold: int = Field(default=0, ge=0)
    """Values that come less often in train are left out of the vocabulary; they are unseen."""
    max_size: int | None = None
    """Most rows of the embedding table, the reserved ones and the buckets included; the first of the vocabulary are kept."""
    num_buckets: int = Field(default=0, ge=0, le=MAX_BUCKETS)
    """Over how many rows, behind the vocabulary, unseen values are spread by a hash; 0 for id 2."""
    joint: bool = False
    """Whether all columns share one vocabulary, named by them with "_" between, that counts the values of all; they have to
    hold values of one type and to live in one table."""
    vocabs: Annotated[dict[str, str], AfterValidator(FrozenDict)] = FrozenDict()
    """Vocabularies that are given: path, by column (by the vocabulary's name where it is joint), of a parquet or CSV file
    (its column `value`, or its first one), or of another file with a value a line. Ids follow the file's order; counts
    are those of train."""

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        if self.max_size is not None and self.max_size < FIRST + self.num_buckets:
            raise ValueError(
                f"max_size is {self.max_size}, and {FIRST} reserved rows and the buckets do not fit into it"
            )
        if self.joint and len(self.columns) < 2:
            raise ValueError("joint is for two columns or more")
        if unknown := sorted(set(self.vocabs) - set(self.vocabularies)):
            raise ValueError(f"vocabs names {unknown}; the vocabularies are {list(self.vocabularies)}")
        if self.vocabs and (self.freq_threshold or self.max_size is not None):
            raise ValueError(
                "a given vocabulary is taken whole, so freq_threshold and max_size belong into a Categorify without vocabs"
            )
        return self

    @property
    def separable(self) -> bool:
        """Columns of one vocabulary stay together."""
        return not self.joint

    @property
    def encodes(self) -> tuple[str, ...]:
        """Its columns."""
        return self.columns

    @property
    def vocabularies(self) -> tuple[str, ...]:
        """Names of the vocabularies."""
        return tuple(dict.fromkeys(map(self.vocabulary_of, self.columns)))

    @property
    def learns(self) -> tuple[str, ...]:
        """The columns: each is counted for itself."""
        return tuple(dict.fromkeys(self.columns))

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the vocabularies, and of what is known beside them of each column."""
        beside = (REST, COUNTS) if self.joint else (REST,)
        return (*self.vocabularies, *(column + suffix for column in self.learns for suffix in beside))

    @property
    def files(self) -> tuple[str, ...]:
        """The given vocabularies."""
        return tuple(self.vocabs.values())

    @property
    def buckets(self) -> int:
        """Rows behind the vocabulary."""
        return self.num_buckets

    @property
    def leaves_out(self) -> bool:
        """Whether a value of train may be left out of the vocabulary."""
        return bool(self.freq_threshold or self.max_size is not None or self.vocabs)

    def vocabulary_of(self, column: str) -> str:
        """Return the name of the vocabulary of one of its columns."""
        return "_".join(self.columns) if self.joint else column

    def counts_of(self, column: str) -> str:
        """Return the name of the state whose `count` says how often train has each value of a vocabulary in this column."""
        return column + COUNTS if self.joint else column

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the columns of ids.

        Raises:
            ConfigError: Columns that share a vocabulary hold values of different types.
        """
        if self.joint:
            _check_types(inputs)
        return {
            name: Spec(
                spec.holding(pa.int32()), categorical=True, vocabulary=self.vocabulary_of(name), dtype="int32",
                buckets=self.num_buckets, tags=spec.tags, lengths=spec.lengths,
            )
            for name, spec in inputs.items()
        }  # fmt: skip

    def learnt(self, outputs: dict[str, Spec | None], state: Mapping[str, pa.Table]) -> dict[str, Spec | None]:
        """Describe the columns with the rows of their embedding tables."""
        found: dict[str, Spec | None] = {}
        for name, spec in outputs.items():
            assert spec is not None
            known = state[self.vocabulary_of(name)].num_rows
            found[name] = replace(spec, cardinality=FIRST + known + self.num_buckets)
        return found


def _check_types(inputs: Mapping[str, Spec]) -> None:
    kinds = {name: spec.element for name, spec in inputs.items()}
    # A type that holds uint64 and negative numbers as well is none of whole numbers.
    mixable = all(pa.types.is_integer(kind) and not pa.types.is_uint64(kind) for kind in kinds.values())
    if len(set(kinds.values())) > 1 and not mixable:
        held = ", ".join(f"{name} holds {kind}" for name, kind in kinds.items())
        raise ConfigError(f"columns that share a vocabulary have to hold values of one type; {held}")
