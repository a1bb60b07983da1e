"""Contract of every op: documentation, serialization, strict options, implementations."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from recsys_cli.cli.options import field_docs
from recsys_cli.ops import OPS, AnyOp
from recsys_cli.ops.op import Op
from recsys_cli.registry import ENGINES
from tests.op_examples import EXAMPLES

every_op = pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.__name__)
reader: TypeAdapter[Op] = TypeAdapter(AnyOp)
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
    example = example_of(op)
    if op.__name__ in REFUSED:
        assert example.refusal(engine) == f"{op.__name__} {REFUSED[op.__name__]}"
    else:
        assert example.refusal(engine) is None
        assert example.joined_by or not example.acts or has(op, "numpy")


def has(op: type[Op], form: str) -> bool:
    """Whether an op has a form of its own or of a base class for some ops."""
    return getattr(op, form) is not getattr(Op, form)


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
        assert example.refusal_for_rows() == f"{op.__name__} {FOR_ROWS[op.__name__]}"
    else:
        assert example.refusal_for_rows() is None
        assert has(op, "numpy")


@every_op
def test_fitted_op_learns_and_row_op_chooses(op: type[Op]) -> None:
    assert {has(op, form) for form in ("learn", "merge", "finalize")} == {op.fitted}
    assert has(op, "choose") == (op.phase == "rows")
