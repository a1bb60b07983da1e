"""Validates the values of `tune.space` at their own keys, so that no trial fails on an invalid value."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy

from pydantic import ValidationError

from recsys_cli.config import yaml12
from recsys_cli.config.document import Document, override
from recsys_cli.config.train import TrainConfig
from recsys_cli.config.tune import Values
from recsys_cli.errors import ConfigError
from recsys_cli.registry import suggest

Check = Callable[[Document], list[str]]
_MOST = 500
"""Maximum number of validated values; each takes the validation of a whole config."""


def assignment(key: str, value: object) -> str:
    """Return the override `key=value`."""
    return f"{key}={yaml12.quoted(value)}"


def space_problems(document: Document, check: Check) -> list[str]:
    """Return one line for each unknown key and each invalid value of the search space.

    Values are validated one by one; an invalid combination fails in its trial.

    Args:
        document: A config. Malformed entries are skipped: the validation of the section reports them.
        check: Returns the problems of a document.
    """
    tune = document.values.get("tune")
    space = tune.get("space") if isinstance(tune, dict) else None
    problems: list[str] = []
    remaining = _MOST
    for key, entry in space.items() if isinstance(space, dict) else ():
        with suppress(ValidationError):
            values = Values.model_validate(entry)
            if (remaining := remaining - len(values.examples)) < 0:
                marker = _marker(document.location(("tune", "space", key)))
                return [
                    *problems,
                    f"{marker}{key}: the space has more than {_MOST} values to check; write ranges for long lists",
                ]
            problems += _problems(document, key, values, check)
    return problems


def _problems(document: Document, key: str, values: Values, check: Check) -> list[str]:
    here = ("tune", "space", key)
    if key.partition(".")[0] not in {"model", "train"} or "." not in key:
        near = suggest(key, [f"train.{name}" for name in TrainConfig.model_fields])
        return [f"{_marker(document.location(here))}{key}: only keys of model and train can be searched{near}"]
    if key == "train.monitor":
        return [f"{_marker(document.location(here))}{key}: compares the trials and has to be the same for all"]
    problems: dict[str, None] = {}
    for inner, value in values.examples.items():
        marker = _marker(document.location((*here, *inner)))
        changed = Document(deepcopy(document.values), dict(document.locations))
        changed.values.pop("tune")
        try:
            override(changed, [assignment(key, value)], location=marker.removesuffix(": "))
        except ConfigError as error:
            return [f"{marker}{key}: {error.message}"]
        # Only problems at this key: other problems of the config are reported elsewhere.
        problems |= dict.fromkeys(problem for problem in check(changed) if problem.startswith(f"{marker}{key}"))
        if problems and values.choices is None:
            break  # one message per range is enough
    return list(problems)


def _marker(location: str) -> str:
    return f"{location + ': ' if location else ''}tune.space: "
