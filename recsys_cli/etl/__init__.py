"""Data preparation: execution of a feature plan on dataframes.

The package is callable: `recsys_cli.etl(config, workspace)` of the Python API has the same name.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, config: Any, workspace: Any, *, force: bool = False, progress: Any = True) -> Any:
        """Prepare the data of a config; see `recsys_cli.api.stages.etl`."""
        return import_module("recsys_cli.api").etl(config, workspace, force=force, progress=progress)


sys.modules[__name__].__class__ = _Callable
