"""Categorical values to vocabulary ids."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.columns import COUNTS, REST, ROW_WEIGHT
from recsys_cli.features.schema import FIRST
from recsys_cli.features.spec import Spec
from recsys_cli.ops.op import FrozenDict, Names, Op, Tables
from recsys_cli.ops.values import Apply, Types, canonical, mapped, retype, set_column
from recsys_cli.ops.vocabulary import (
    PACKED,
    Ids,
    VocabularyIndex,
    add_up,
    count,
    encode_column,
    encoder_of,
    in_order,
    unpacked,
    without_null,
)
from recsys_cli.packages import pa, pc, pl

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
    grow: bool = Field(default=False, exclude_if=operator.not_)  # absent from keys of plans without it
    """Append the values of train outside a given vocabulary to it, in the usual order; those given keep their ids."""

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
        if self.grow and not self.vocabs:
            raise ValueError("grow appends to given vocabularies: set vocabs")
        if self.vocabs and not self.grow and (self.freq_threshold or self.max_size is not None):
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
        return bool(self.freq_threshold or self.max_size is not None or (self.vocabs and not self.grow))

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

    def fitted_output(self, name: str, spec: Spec, state: Tables) -> Spec:
        """Add the size of the embedding table."""
        size = state[self.vocabulary_of(name)].num_rows
        return replace(spec, cardinality=FIRST + size + self.num_buckets)

    def learn(self, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
        """Count each distinct value, null included, as `value` and `count`; lists by element.

        Counting and encoding run in NumPy on 64-bit keys, faster than Polars on strings.
        """
        unweighted = not weight.meta.root_names()
        queries = {}
        for column in self.learns:
            values = frame.select(pl.col(column).alias("value"), weight.alias("count"))
            if isinstance(values.collect_schema()["value"], pl.List):
                values = values.filter(pl.col("value").list.len() > 0).explode("value")
            kind = values.collect_schema()["value"]
            if isinstance(kind, pl.Categorical | pl.Enum):
                kind = pl.String()
                values = values.with_columns(pl.col("value").cast(kind))
            if unweighted:
                schema = {"value": kind, "count": pl.Int64()}
                queries[column] = values.select("value").map_batches(_counted, schema=schema)
            else:
                queries[column] = values.group_by("value").agg(pl.col("count").sum())
        return queries

    def learn_on_nvtabular(self, rows: pa.Table, folder: Path) -> Tables:
        """Count by a Categorify of NVTabular, which has no weights."""
        from recsys_cli.ops.nvtabular import count_values

        if ROW_WEIGHT in rows.column_names:
            return super().learn_on_nvtabular(rows, folder)
        return {name: count_values(rows.column(name), name, folder / str(at)) for at, name in enumerate(self.learns)}

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Sum the counts by value, null included, in any order."""
        return add_up(parts)

    def without_rare(
        self, counts: Mapping[str, pa.Table], keys: Mapping[str, pa.Array]
    ) -> tuple[dict[str, pa.Table], dict[str, int]]:
        """Leave out values of a vocabulary that `finalize` would leave out, other than null and `keys`.

        Returns:
            The counts by column, and the sum of those left out.
        """
        kept = _most_frequent(self, add_up([_valid_counts(one) for one in counts.values()]), taken=0).column("value")
        rest: dict[str, pa.Table] = {}
        dropped: dict[str, int] = {}
        for name, one in counts.items():
            values = _plain(canonical(unpacked(one).column("value").combine_chunks()))
            known = pa.concat_arrays([kept.combine_chunks().cast(values.type), keys[name].cast(values.type)])
            mask = pc.or_(values.is_null(), pc.is_in(values, value_set=known))
            table = pa.table({"value": values, "count": one.column("count")})
            rest[name] = table.filter(mask)
            dropped[name] = _total(one.column("count")) - _total(rest[name].column("count"))
        return rest, dropped

    def finalize(self, merged: Tables) -> dict[str, pa.Table]:
        """Compute values and order of each vocabulary, without null and NaN."""
        state: dict[str, pa.Table] = {}
        for vocabulary in self.vocabularies:
            columns = [column for column in self.learns if self.vocabulary_of(column) == vocabulary]
            valid = {column: _valid_counts(merged[column]) for column in columns}
            table = _vocabulary(self, vocabulary, add_up([*valid.values()]))
            state[vocabulary] = table
            for column, counts in valid.items():
                own = _counts_in(table, counts) if self.joint else table.column("count")
                if self.joint:
                    state[column + COUNTS] = pa.table({"count": own})
                num_valid, num_encoded = _total(counts.column("count")), _total(own)
                state[column + REST] = pa.table({
                    "null": pa.array([_total(merged[column].column("count")) - num_valid], pa.int64()),
                    "unseen": pa.array([num_valid - num_encoded], pa.int64()),
                })  # fmt: skip
        return state

    def numpy(self, state: Tables, types: Types, indexes: Mapping[str, VocabularyIndex] | None = None) -> Apply:
        """Replace values by ids; a vocabulary without an index, such as a memory-mapped one, gets one."""
        built: dict[str, VocabularyIndex] = dict(indexes or {})
        functions = {}
        for name in self.learns:
            if name not in types:  # one of several columns with one vocabulary, and not needed
                continue
            vocabulary = self.vocabulary_of(name)
            if vocabulary not in built:
                built[vocabulary] = VocabularyIndex.build(state[vocabulary].column("value"))
            functions[name] = partial(built[vocabulary].encode, num_buckets=self.num_buckets)
            retype(types, name, pa.int32())
        return mapped(functions)

    def polars(self, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Replace values by ids."""
        return frame.with_columns(encode_column(name, frame, self.encoding(name, state)) for name in self.learns)

    def encoding(self, name: str, state: Tables) -> Callable[[pa.Array], Ids]:
        """Return the function from Arrow values of a column to ids."""
        return partial(encoder_of(state[self.vocabulary_of(name)]), num_buckets=self.num_buckets)

    def nvtabular(self, state: Tables, rows: pa.Table, folder: Path) -> pa.Table:
        """Replace values by ids, by a Categorify of NVTabular with given vocabularies."""
        from recsys_cli.ops.nvtabular import encode

        for at, name in enumerate(self.learns):
            vocabulary = state[self.vocabulary_of(name)]
            ids = encode(rows.column(name), name, vocabulary, folder / str(at), self.num_buckets)
            rows = set_column(rows, name, ids)
        return rows


def _check_types(inputs: Mapping[str, Spec]) -> None:
    kinds = {name: spec.element for name, spec in inputs.items()}
    # The common type of uint64 and a signed integer is a float.
    mixable = all(pa.types.is_integer(kind) and not pa.types.is_uint64(kind) for kind in kinds.values())
    if len(set(kinds.values())) > 1 and not mixable:
        held = ", ".join(f"{name} holds {kind}" for name, kind in kinds.items())
        raise ConfigError(f"columns of a joint vocabulary need one type; {held}")


def counts_of(values: pa.Table, merged: pa.Table) -> pa.ChunkedArray:
    """Return the train counts of values from merged counts; 0 for absent values."""
    return _counts_in(values, _valid_counts(merged))


def _counted(frame: pl.DataFrame) -> pl.DataFrame:
    series = frame.get_column("value")
    return pl.DataFrame(unpacked(count(series.to_arrow()))).cast({"value": series.dtype})


def _valid_counts(counts: pa.Table) -> pa.Table:
    """Return the counts of non-null values in canonical form."""
    if PACKED in counts.column_names:
        return without_null(counts)
    values = _plain(canonical(counts.column("value").combine_chunks()))
    counts = without_null(
        pa.table({"value": values, "count": counts.column("count").cast(pa.int64()).combine_chunks()})
    )
    if not pa.types.is_floating(values.type):
        return counts
    # 0.0 and -0.0 are one canonical value, possibly with two counts.
    return pl.DataFrame(counts).group_by("value").agg(pl.col("count").sum()).to_arrow()


def _vocabulary(op: Categorify, name: str, counts: pa.Table) -> pa.Table:
    if name in op.vocabs:
        kind = _plain(unpacked(counts.slice(0, 0)).column("value").combine_chunks()).type
        values = read_vocabulary(op.vocabs[name], name, kind, forgotten=op.grow)
        given = pa.table({"value": values, "count": _counts_in(pa.table({"value": values}), counts)})
        return pa.concat_tables([given, _appended(op, given, counts)]) if op.grow else given
    return _most_frequent(op, counts, taken=0)


def _most_frequent(op: Categorify, counts: pa.Table, *, taken: int) -> pa.Table:
    """Return the values of a vocabulary with `taken` values before them."""
    if op.freq_threshold > 1:
        counts = counts.filter(pc.greater_equal(counts.column("count"), op.freq_threshold))
    ordered = in_order(counts)
    if op.max_size is not None:
        ordered = ordered.slice(0, max(0, op.max_size - FIRST - op.num_buckets - taken))
    return pa.table({"value": _plain(ordered.column("value").combine_chunks()), "count": ordered.column("count")})


def _appended(op: Categorify, given: pa.Table, counts: pa.Table) -> pa.Table:
    """Return the values of train to append to a given vocabulary."""
    counts = unpacked(counts)
    values = _plain(counts.column("value").combine_chunks())
    known = pc.is_in(values, value_set=given.column("value").combine_chunks())
    new = pa.table({"value": values, "count": counts.column("count")}).filter(pc.invert(known))
    return _most_frequent(op, new, taken=given.num_rows).cast(given.schema)


def _counts_in(vocabulary: pa.Table, counts: pa.Table) -> pa.ChunkedArray:
    values = pl.DataFrame(vocabulary.select(["value"]))
    right = pl.DataFrame(unpacked(counts)).with_columns(pl.col("value").cast(values.schema["value"]))
    joined = values.join(right, on="value", how="left", maintain_order="left")
    return pa.chunked_array([joined.get_column("count").fill_null(0).to_arrow()])


def _plain(values: pa.Array) -> pa.Array:
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if pa.types.is_large_string(kind) or str(kind) == "string_view":
        kind = pa.string()
    return values if values.type == kind else values.cast(kind)


def _total(counts: pa.ChunkedArray) -> int:
    return int(pc.sum(counts).as_py() or 0)


_VALUES = "value"
_MAX_SHOWN = 5


def read_vocabulary(path: str, name: str, kind: pa.DataType, *, forgotten: bool = False) -> pa.Array:
    """Return the values of a parquet or CSV file (column `value`, or else the first), or of a text file, one per line.

    `kind` is the type of the values in train, null if train has none. Nulls are errors unless they stand for `forgotten` ids.

    Raises:
        DataError: The file is not readable, or has values of another type, nulls or duplicates.
    """
    where = f"the vocabulary of {name}, {path}"
    try:
        values = _read_values(Path(path))
        if not pa.types.is_null(kind):
            values = values.cast(kind)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{where}: {error}", hint=f"paths are relative to {Path.cwd()}") from error
    values = canonical(values)
    missing = pc.indices_nonzero(values.is_null())
    if len(missing) and not _is_fitted(Path(path)):
        numbers = ", ".join(str(number + 1) for number in missing[:_MAX_SHOWN].to_pylist())
        raise DataError(f"{where}: {len(missing)} values are null: number {numbers}", hint="remove them: null has id 1")
    counts = pc.value_counts(values.drop_null())
    duplicates = counts.field(0).filter(pc.greater(counts.field(1), 1))
    if len(duplicates):
        shown = ", ".join(map(str, duplicates[:_MAX_SHOWN].to_pylist()))
        raise DataError(f"{where}: {len(duplicates)} duplicate values: {shown}", hint="list each value once")
    return values


def _is_fitted(path: Path) -> bool:
    """Whether a file is a vocabulary of prepared data, where null is a forgotten value."""
    import pyarrow.parquet as pq

    return path.suffix == ".parquet" and pq.read_schema(path).names == [_VALUES, "count"]


def _read_values(path: Path) -> pa.Array:
    import pyarrow.csv as arrow_csv
    import pyarrow.parquet as pq

    if path.suffix.lower() == ".parquet":
        table = pq.read_table(path)
    elif path.suffix.lower() == ".csv":
        names = arrow_csv.open_csv(path).schema.names
        as_text = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        table = arrow_csv.read_csv(path, convert_options=as_text)
    else:
        text = path.read_text(encoding="utf-8")
        lines = text.removesuffix("\n").split("\n") if text else []
        table = pa.table({_VALUES: pa.array([line.removesuffix("\r") for line in lines], pa.string())})
    if not table.num_columns:
        raise ValueError("the file has no column")
    values = table.column(_VALUES if _VALUES in table.column_names else 0).combine_chunks()
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
