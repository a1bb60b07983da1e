"""Layout of `recsys ls`: text fits the terminal, and every op documents its options."""

import io
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from recsys_cli import registry
from recsys_cli.cli import catalog, options
from recsys_cli.ops import OPS

NAMES = sorted(OPS)


def rendered(found: dict, width: int) -> list[str]:
    """Return the lines of the output at a terminal width."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, no_color=True, highlight=False)
    catalog._draw_one(console, found)
    text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_an_op_is_explained_within_the_terminal(recsys, name):
    found = recsys("ls", "ops", name, "--json").json
    for width in (80, 120):
        lines = rendered(found, width)
        assert max(map(len, lines)) <= width
        body = lines[: lines.index("Options")]
        short = [line for line, after in pairwise(body[1:]) if after and line and len(line) < width * 0.6]
        assert not short, "a line ends where the source does"
        assert all(any(line.startswith(f"  {option['name']}: ") for line in lines) for option in found["options"])
    for option in found["options"]:
        assert option["meaning"]
        assert "\n" not in option["meaning"]
        assert not re.search(r"typing|Annotated|<class|NoneType|FieldInfo", option["type"]), option


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("datasets", "files", {"interactions.files", "interactions.lists.KEY.empty", "tables.KEY.types"}),
        ("datasets", "synthetic", {"users", "items", "rows", "seed"}),
        ("splits", "temporal", {"valid", "test"}),
        ("splits", "files", {"train", "valid", "test"}),
        ("schedules", "cosine", {"warmup_steps", "floor"}),
        ("sections", "bench", {"models.0.name", "models.0.train", "seeds", "metrics"}),
        ("sections", "tune", {"space.KEY.low", "space.KEY.choices", "trials", "pruning"}),
        ("sections", "train", {"epochs", "monitor"}),
    ],
)
def test_keys_are_listed_with_their_meaning(recsys, kind, name, expected):
    found = recsys("ls", kind, name, "--json").json["options"]
    assert expected <= {option["name"] for option in found}
    assert all(option["meaning"] for option in found)
    assert not [
        option for option in found if re.search(r"typing|Annotated|<class|NoneType|Options|Values", option["type"])
    ]


def test_a_preset_has_its_own_defaults(recsys):
    (users,) = (
        one for one in recsys("ls", "datasets", "synthetic-25m", "--json").json["options"] if one["name"] == "users"
    )
    assert (users["default"], users["required"]) == (162_541, False)


def test_paragraphs_of_a_docstring_stay_apart():
    text = "One thing is\nnot: another.\n\nSecond.\nOutput: a column of\nnumbers.\nFunctions of text: none. As in\nNVTabular: so."
    assert options.unwrapped(text).splitlines() == [
        "One thing is not: another.",
        "Second.",
        "Output: a column of numbers.",
        "Functions of text: none. As in NVTabular: so.",
    ]


def test_types_are_named_in_words():
    assert options.type_name(dict[str, int | None]) == "mapping of text to int or null"
    fields = {
        name: options.type_name(field.annotation) for name, field in options.ops()["ListSlice"].model_fields.items()
    }
    assert fields["columns"] == "list of text"
    assert fields["end"] == "int or null"


def test_no_value_is_written_as_yaml_does(recsys):
    """Types and defaults are shown in the syntax of a config."""
    shown = " ".join(recsys("ls", "sections", "train").out.split())
    assert "early_stopping: int or null, default null" in shown
    assert "null: train all epochs" in shown
    assert "scale_learning_rate: none | " in shown, "a text that means no scaling stays a text"


def test_models_are_listed_by_purpose_best_first(recsys):
    """Models follow their measured metrics, if any; every model has a line."""
    models = recsys("ls", "models", "--json").json["models"]
    assert {model["name"] for model in models} == {registry.AUTO, *registry.MODELS}
    assert models[0]["name"] == registry.AUTO
    kinds = recsys("ls")
    assert (kinds.code, kinds.out.split()[:3]) == (0, ["datasets", "splits", "ops"])
    assert "ease" in recsys("ls", "models", registry.AUTO).out
    results = Path(__file__).resolve().parents[2] / "scripts" / "results"
    topk = json.loads((results / "quality_topk.json").read_text())["loo"]
    ranking = json.loads((results / "quality_ranking.json").read_text())["models"]
    measured = {
        registry.RANK: {name: found["ndcg@10"] for name, found in topk.items()},
        registry.PREDICT: {name: found["mean"]["auc"] for name, found in ranking.items()},
    }
    for task, figures in measured.items():
        found = [figures[model["name"]] for model in models if model["task"] == task and model["name"] in figures]
        assert len(found) > 5
        assert found == sorted(found, reverse=True)
    text = recsys("ls", "models").out
    assert text.index("sasrec") < text.index("popularity") < text.index("lightgbm") < text.index("logistic")
    assert "To rank the catalog: " in recsys("ls", "models", "ease").out


@pytest.mark.parametrize(
    ("section", "kind"),
    [("split", "splits"), ("schedule", "schedules"), ("train.schedule", "schedules"), ("ops", "ops")],
)
def test_a_section_with_several_forms_refers_to_its_list(recsys, section, kind):
    answer = recsys("ls", "sections", section)
    assert answer.code == 2
    assert f"hint: recsys ls {kind}" in answer.err


@pytest.mark.parametrize("name", ["ndcg@k", "ndcg", "ndcg@10"])
def test_a_metric_is_explained_by_its_definition_without_shapes(recsys, name):
    found = recsys("ls", "metrics", name, "--json").json
    assert found["name"] == "ndcg@k"
    assert found["summary"] == "Discounted cumulative gain of the top k over that of the ideal ranking."
    assert "Järvelin and Kekäläinen (2002)" in " ".join(rendered(found, 80))
    assert "shape (" not in str(recsys("ls", "metrics", "--json").json["metrics"])
