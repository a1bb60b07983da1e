"""Overrides of every config key with odd values: a config, or an error of recsys."""

from __future__ import annotations

import pytest

from recsys_cli.config import from_values
from recsys_cli.errors import ConfigError
from tests.api.frozen import config_keys

QUICK = ("3", "[[1]]", "{op: 3}")
SLOW = (".nan", "true", "null", "''", "10000000000000000000000000", "2026-01-01", "x" * 300, "[null]")
_KINDS = {
    "split": ("split.", "split.method"), "op": ("features.ops.0.", "features.ops.0.op"),
    "train.schedule": ("train.schedule.", "train.schedule.name"), "model": ("model.", "model.name"),
    "dataset": ("dataset.", "dataset.name"),
}  # fmt: skip
CONFIG = {
    "dataset": {"name": "files", "interactions": "ratings.csv"},
    "features": {"user": "u", "item": "i", "ops": [{"op": "Categorify", "columns": ["u", "i"]}]},
}


def overrides() -> list[tuple[str, ...]]:
    """Return the key of each option, after the overrides that choose its split, op, schedule, model or dataset."""
    found = []
    for key in config_keys():
        kind, _, option = key.partition(": ")
        if option:
            (prefix, tag), (name, _, option) = _KINDS[kind], option.partition(".")
            found.append((f"{tag}={name}", f"{prefix}{option}"))
        else:
            found.append((key,))
    return found


@pytest.mark.parametrize("value", [*QUICK, *(pytest.param(value, marks=pytest.mark.slow) for value in SLOW)])
def test_every_key_takes_or_refuses_an_odd_value(value: str) -> None:
    for *chosen, key in overrides():
        try:
            from_values(CONFIG, [*chosen, f"{key}={value}"])
        except ConfigError as error:
            assert error.message  # noqa: PT017 - a few values are taken
