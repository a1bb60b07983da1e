"""Checks the values of `tune.space` as if each were written at its own key, so that no trial meets a value that cannot be."""

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
"""Values that are checked, each like a config of its own."""


def assignment(key: str, value: object) -> str:
    """Return the override that gives a key a value."""
    return f"{key}={yaml12.quoted(value)}"


def space_problems(document: Document, check: Check) -> list[str]:
    """Return one line for each key of the space that there is not, and each value that its key cannot take.

    Values are looked at one by one: which of them exclude each other turns out in the trial that has both.

    Args:
        document: A config; where an entry is no range and no choices, that is said elsewhere.
        check: Gives the problems of a document.
    """
    tune = document.values.get("tune")
    space = tune.get("space") if isinstance(tune, dict) else None
    found: list[str] = []
    left = _MOST
    for key, written in space.items() if isinstance(space, dict) else ():
        with suppress(ValidationError):
            values = Values.model_validate(written)
            if (left := left - len(values.examples)) < 0:
                marker = _marker(document.place(("tune", "space", key)))
                return [
                    *found,
                    f"{marker}{key}: the space has more than {_MOST} values to check; write ranges for long lists",
                ]
            found += _problems(document, key, values, check)
    return found


def _problems(document: Document, key: str, values: Values, check: Check) -> list[str]:
    here = ("tune", "space", key)
    if key.partition(".")[0] not in {"model", "train"} or "." not in key:
        near = suggest(key, [f"train.{name}" for name in TrainConfig.model_fields])
        return [f"{_marker(document.place(here))}{key}: only keys of model and train can be searched{near}"]
    if key == "train.monitor":
        return [f"{_marker(document.place(here))}{key}: is what trials are compared by, and has to be the same for all"]
    found: dict[str, None] = {}
    for inner, value in values.examples.items():
        marker = _marker(document.place((*here, *inner)))
        changed = Document(deepcopy(document.values), dict(document.places))
        changed.values.pop("tune")
        try:
            override(changed, [assignment(key, value)], place=marker.removesuffix(": "))
        except ConfigError as error:
            return [f"{marker}{key}: {error.message}"]
        # What is wrong with the rest of the config, or with the two together, is not this value's.
        found |= dict.fromkeys(problem for problem in check(changed) if problem.startswith(f"{marker}{key}"))
        if found and values.choices is None:
            break  # the other numbers of a range are as wrong as this one
    return list(found)


def _marker(place: str) -> str:
    return f"{place + ': ' if place else ''}tune.space: "
