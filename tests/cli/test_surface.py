"""The frozen commands and options, their texts, and included configs."""

from pathlib import Path

import pytest
from pydantic import BaseModel, create_model
from typer.main import get_command

from recsys_cli.cli import app, shipped
from recsys_cli.cli.options import field_docs
from recsys_cli.config import TrainConfig
from recsys_cli.config.load import model_config_type
from recsys_cli.registry import MODELS


def test_every_command_and_option_has_a_help_text():
    group = get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        assert command.help, name
        for param in command.params:
            assert param.help, f"{name} {param.name}"


def test_usage_is_written_as_people_type_it():
    group = get_command(app)
    usage = {
        name: command.get_usage(command.make_context(f"recsys {name}", [], resilient_parsing=True))
        for name, command in group.commands.items()
    }  # type: ignore[attr-defined]
    assert usage["compare"].split() == ["Usage:", "recsys", "compare", "[OPTIONS]", "[RUN]..."]
    assert usage["inspect"].split() == ["Usage:", "recsys", "inspect", "[OPTIONS]", "user|item", "ID"]
    assert not [line for line in usage.values() if "{" in line or "}" in line]


@pytest.mark.parametrize("name", MODELS)
def test_every_option_of_a_model_has_a_text(name):
    config = model_config_type(name)
    assert set(config.model_fields) <= set(field_docs(config))


def test_the_text_is_that_of_the_source():
    class Base(BaseModel):
        first: int = 1
        """The first one,
        on two lines."""
        second: int = 2

    class Inner(Base):
        second: int = 3
        """The second one."""

    assert field_docs(Inner) == {"first": "The first one,\non two lines.", "second": "The second one."}
    assert field_docs(create_model("Made", third=(int, 1))) == {}
    assert set(field_docs(TrainConfig)) == set(TrainConfig.model_fields)


def test_shipped_config_is_found_from_any_directory(recsys):
    answer = recsys("validate", "configs/ml25m.yaml")

    assert (answer.code, "ml25m.yaml is valid" in answer.out) == (0, True)


def test_own_config_comes_before_the_shipped_one(recsys):
    own = Path("configs/ml25m.yaml")
    own.parent.mkdir()
    own.write_text("dataset: {name: movielens-52m}\n")

    answer = recsys("validate", "configs/ml25m.yaml")

    assert answer.code == 2
    assert "movielens-52m" in answer.err
    assert shipped.configs() == [own]
