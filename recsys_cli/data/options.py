"""How a dataset's options are checked: all mistakes in one error, each with the nearest known key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from recsys_cli.errors import ConfigError
from recsys_cli.registry import suggest

Options = TypeVar("Options", bound=BaseModel)


class NoOptions(BaseModel):
    """The options of a dataset that has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def parse_options(
    model: type[Options], options: Mapping[str, object], *, dataset: str, hint: str | None = None
) -> Options:
    """Turn the config's dataset section into typed options.

    Args:
        model: The pydantic class of the options.
        options: Keys and values as they stand in the config.
        dataset: Name of the dataset, for the message.
        hint: What to say of the options instead of naming them.

    Raises:
        ConfigError: One or more options are wrong; the message lists them all.
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
        return f"dataset.{where}: is needed"
    # A check over several fields has no place of its own; pydantic prefixes its own words to those of a ValueError.
    text = str(detail["msg"]).removeprefix("Value error, ")
    return f"dataset.{where}: {text} (got {detail['input']!r})" if where else f"dataset: {text}"
