"""Checks of the types of arguments."""

from __future__ import annotations

from numbers import Integral
from types import NoneType

from recsys_cli import workspace
from recsys_cli.config import EvaluateConfig, RunConfig
from recsys_cli.errors import ConfigError

_NAMES: dict[type, str] = {Integral: "int", NoneType: "None"}
_MAKERS: dict[type, str] = {
    RunConfig: "recsys.load_config and recsys.config_from_frame return one",
    EvaluateConfig: "config.evaluate of a RunConfig is one",
    workspace.Workspace: "recsys.Workspace(path) returns one",
    workspace.TrainedRun: "recsys.train(config, workspace) and workspace.run(name) return one",
}


def check(**arguments: tuple[object, type | tuple[type, ...]]) -> None:
    """Check the types of arguments.

    Args:
        arguments: By name, the value and its type or types; `bool` is no number.

    Raises:
        ConfigError: The first argument of another type.
    """
    for name, (value, types) in arguments.items():
        kinds = types if isinstance(types, tuple) else (types,)
        if isinstance(value, bool) or not isinstance(value, kinds):
            names = " or ".join(_NAMES.get(kind, kind.__name__) for kind in kinds)
            hints = "; ".join(_MAKERS[kind] for kind in kinds if kind in _MAKERS)
            raise ConfigError(
                f"{name} has to be {names}, not {type(value).__name__}: {value!r:.60}", hint=hints or None
            )
