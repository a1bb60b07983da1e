"""Docstrings of config fields are those below them in the source."""

from __future__ import annotations

from importlib import import_module

import pytest
from pydantic import BaseModel, create_model

from recsys_cli.cli.field_docs import field_docs
from recsys_cli.config import TrainConfig
from recsys_cli.registry import MODELS


@pytest.mark.parametrize("package", MODELS.values())
def test_every_option_of_a_model_has_a_text(package: str) -> None:
    config = import_module(f"{package}.config").Config
    assert set(config.model_fields) <= set(field_docs(config))


def test_the_text_is_that_of_the_source() -> None:
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
