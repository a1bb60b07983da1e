"""Weights & Biases tracker, offline: files in RUN/wandb for a later `wandb sync`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import ClassVar

from recsys_cli.errors import MissingExtraError
from recsys_cli.training.trackers import Series

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
try:
    with warnings.catch_warnings(action="ignore"):  # deprecations in dependencies
        import wandb
except ImportError as _error:
    raise MissingExtraError.for_extra("track", what="train.trackers: wandb") from _error


class WandB:
    """Logs metrics and config to an offline run. A resumed run has one folder per session, with the same id."""

    rewinds: ClassVar[bool] = False

    def __init__(self, series: Series) -> None:
        name = series.run.folder.name
        settings = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_meta=True, x_disable_stats=True,
            x_disable_machine_info=True, x_save_requirements=False, symlink=False,
        )  # fmt: skip
        with warnings.catch_warnings(action="ignore"):
            self._run = wandb.init(
                mode="offline", dir=series.run.folder, project=os.environ.get("WANDB_PROJECT", "recsys"), id=name,
                name=name, config=dict(series.config), resume="allow" if series.done else None, reinit="create_new",
                settings=settings,
            )  # fmt: skip

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log a row of the run history."""
        with warnings.catch_warnings(action="ignore"):
            self._run.log(dict(values), step=step)

    def close(self, *, finished: bool) -> None:
        """Finish the run with its exit code."""
        with warnings.catch_warnings(action="ignore"):
            self._run.finish(exit_code=0 if finished else 1)
