"""Contract of every op: documentation, serialization, strict options, implementations."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from recsys_cli.cli.field_docs import field_docs
from recsys_cli.errors import ConfigError
from recsys_cli.etl.aggregators import MODULES as AGGREGATORS
from recsys_cli.etl.filters.ops import MODULES as FILTERS
from recsys_cli.etl.implementations import load, refusal
from recsys_cli.etl.nvtabular_engine.ops import MODULES as NVTABULAR
from recsys_cli.etl.polars_engine.ops import MODULES as POLARS
from recsys_cli.ops import AnyOp
from recsys_cli.ops.op import Op
from recsys_cli.ops.steps import Gather, Locate
from recsys_cli.registry import ENGINES
from recsys_cli.serving.encoder import ops as encoder
from tests.op_examples import EXAMPLES

OPS: tuple[type[Op], ...] = get_args(get_args(AnyOp)[0])

every_op = pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
reader: TypeAdapter[Op] = TypeAdapter(AnyOp)
ROLES = {
    "polars": POLARS,
    "nvtabular": NVTABULAR,
    "aggregator": AGGREGATORS,
    "filter": FILTERS,
    "encoder": encoder.MODULES,
}
OUTSIDE = "chooses rows before the split, outside the engines"
DESCRIBES = "only describes columns, so the engines have nothing to compute"
REFUSED = {
    "Deduplicate": OUTSIDE, "DifferenceLag": OUTSIDE, "Dropna": OUTSIDE, "Filter": OUTSIDE, "Groupby": OUTSIDE, "KCore": OUTSIDE,
    "TimeWindow": OUTSIDE, "AddTags": DESCRIBES, "DropLowCardinality": DESCRIBES,
    "NegativeSampling": "samples rows after the split, outside the engines",
}  # fmt: skip
"""Ops without an engine implementation, and the reason."""


def example_of(op: type[Op]) -> Op:
    if op not in EXAMPLES:
        pytest.fail(f"add {op.__name__}: {op.__name__}(…) with typical options to EXAMPLES of tests/op_examples.py")
    return EXAMPLES[op]


def test_op_without_an_example_is_explained() -> None:
    with pytest.raises(
        pytest.fail.Exception, match=r"add Op: Op\(…\) with typical options to EXAMPLES of tests/op_examples\.py"
    ):
        example_of(Op)


@every_op
def test_op_documents_nulls_and_fitting(op: type[Op]) -> None:
    meaning = " ".join((op.__doc__ or "").split()).lower()
    assert "null" in meaning, "document the treatment of nulls"
    assert "fitted" in meaning, "document the fitted state"
    assert not set(op.model_fields) - {"op"} - set(field_docs(op))


@every_op
def test_op_is_named_in_a_config_as_its_class(op: type[Op]) -> None:
    assert op.model_fields["op"].default == op.__name__


@every_op
def test_op_round_trips_through_json(op: type[Op]) -> None:
    example = example_of(op)
    assert reader.validate_json(example.model_dump_json()) == example
    assert hash(reader.validate_python(example.model_dump())) == hash(example)


@every_op
def test_op_refuses_unknown_options(op: type[Op]) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        reader.validate_python(example_of(op).model_dump() | {"colums": 1})


@every_op
def test_op_cannot_be_changed(op: type[Op]) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        example_of(op).op = "Other"  # type: ignore[attr-defined]


@every_op
@pytest.mark.parametrize("engine", ENGINES)
def test_engine_computes_an_op_or_says_why_not(op: type[Op], engine: str) -> None:
    example, modules = example_of(op), ROLES[engine]
    if op.__name__ in REFUSED:
        reason = f"{op.__name__} {REFUSED[op.__name__]}"
        assert refusal(example, engine, modules) == reason
        with pytest.raises(ConfigError, match=reason):
            load(example, engine, modules)
    else:
        assert refusal(example, engine, modules) is None
        module = load(example, engine, modules)
        wanted = {"by_id"} if example.joined_by else {"apply"} if example.acts else set()
        assert not {*wanted, *(["learn"] if example.fitted else [])} - set(vars(module))


FOR_ROWS = {
    "DifferenceLag": "reads other rows; bring its output columns", "Groupby": "reads other rows; bring its output columns",
    "NegativeSampling": "samples rows of a data set", "JoinExternal": "joins a table; the tables by id have its columns",
    "AddTags": "only describes columns", "DropLowCardinality": "only describes columns", "ValueCount": "only describes columns",
} | dict.fromkeys(
    ("Deduplicate", "Dropna", "Filter", "KCore", "TimeWindow"), "only drops rows, so single rows skip it"
)  # fmt: skip
"""Ops without an encoding of single rows, and the reason."""


@every_op
def test_encoder_computes_an_op_for_single_rows_or_says_why_not(op: type[Op]) -> None:
    example = EXAMPLES[op]
    if op.__name__ in FOR_ROWS:
        reason = f"{op.__name__} {FOR_ROWS[op.__name__]}"
        assert encoder.refusal(example) == reason
        with pytest.raises(ConfigError, match=reason):
            encoder.load(example)
    else:
        assert encoder.refusal(example) is None
        assert callable(encoder.load(example).compiled)


@every_op
def test_fitted_op_has_an_aggregator_and_row_op_a_filter(op: type[Op]) -> None:
    example = example_of(op)
    for role, has, functions, reason in (
        ("aggregator", example.fitted, ("merge", "finalize"), "learns nothing from train"),
        ("filter", example.phase == "rows", ("choose",), "filters no rows"),
    ):
        assert refusal(example, role, ROLES[role]) == (None if has else f"{op.__name__} {reason}")
        if has:
            module = load(example, role, ROLES[role])
            assert all(callable(getattr(module, function)) for function in functions)


@pytest.mark.parametrize("role", ROLES)
def test_table_of_implementations_names_only_ops(role: str) -> None:
    assert set(ROLES[role]) <= {*OPS, Gather, Locate}
