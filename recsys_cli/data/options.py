"""Validation of dataset options: all mistakes in one error, with suggestions for unknown keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from recsys_cli.data.secrets import holds_secret
from recsys_cli.errors import ConfigError
from recsys_cli.registry import suggest

Options = TypeVar("Options", bound=BaseModel)


class NoOptions(BaseModel):
    """The options of a dataset without options."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def parse_options(
    model: type[Options], options: Mapping[str, object], *, dataset: str, hint: str | None = None
) -> Options:
    """Parse the config's dataset section into typed options.

    Args:
        model: The pydantic class of the options.
        options: Raw keys and values of the config.
        dataset: Name of the dataset, for errors.
        hint: Hint of the error; default: the list of options.

    Raises:
        ConfigError: Some options are invalid; the message lists all of them.
    """
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        known = list(model.model_fields)
        lines = [_line(dict(detail), known) for detail in error.errors(include_url=False)]
        raise ConfigError(
            "\n  ".join([f"dataset {dataset!r} cannot be opened:", *lines]),
            hint=hint or (f"options of {dataset}: {', '.join(known)}" if known else f"{dataset} has no options"),
        ) from error


def _line(detail: dict[str, Any], known: list[str]) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"dataset.{where}: unknown option{suggest(where, known)}"
    if detail["type"] == "missing":
        return f"dataset.{where}: is required"
    # A check over several fields has no location; pydantic adds a prefix to the text of a ValueError.
    text = str(detail["msg"]).removeprefix("Value error, ")
    got = repr(detail["input"])
    got = "" if holds_secret(got) else f" (got {got})"
    return f"dataset.{where}: {text}{got}" if where else f"dataset: {text}"
