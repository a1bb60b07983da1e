"""MLflow: a store of the workspace, or the server that MLFLOW_TRACKING_URI names, as all programs that use MLflow take it."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from recsys_cli.errors import MissingExtraError
from recsys_cli.training.trackers.tracker import Series, flat

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
try:
    with warnings.catch_warnings(action="ignore"):  # of its dependencies' past
        import alembic  # noqa: F401 - what a local store needs beside mlflow-skinny
        import sqlalchemy  # noqa: F401
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient
except ImportError as _error:
    raise MissingExtraError.for_extra("track", what="train.trackers: mlflow") from _error

_PARAMS, _LENGTH = 100, 500
"""How many params MLflow takes at a time, and how long the text of one may be in every release and store."""
_RUN = "recsys.run"
"""Tag with the run's name, to find it when it is resumed: MLflow's own ids are chosen by MLflow."""


class MLflow:
    """Write the numbers as metrics and the config as params of one MLflow run.

    Without MLFLOW_TRACKING_URI the store is WORKSPACE/mlflow/mlflow.db: releases from 3 on refuse plain folders. Look at it
    with `mlflow ui --backend-store-uri sqlite:///workspace/mlflow/mlflow.db`.

    Args:
        series: What is logged.
    """

    rewinds: ClassVar[bool] = False

    def __init__(self, series: Series) -> None:
        given = os.environ.get("MLFLOW_TRACKING_URI")
        local = series.run.folder.absolute().parents[1] / "mlflow"
        if not given:
            local.mkdir(exist_ok=True)
        with _quiet():
            self._client = MlflowClient(given or f"sqlite:///{local / 'mlflow.db'}")
            experiment = self._experiment(None if given else local)
            self._run = self._found(experiment, series) or self._new(experiment, series)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write metrics."""
        now = int(1_000 * time.time())
        with _quiet():
            self._client.log_batch(self._run, [Metric(name, value, now, step) for name, value in values.items()])

    def close(self, *, finished: bool) -> None:
        """Say how the run ended."""
        with _quiet():
            self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")

    def _experiment(self, local: Path | None) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "recsys")
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        artifacts = None if local is None else (local / "artifacts").as_uri()
        return str(self._client.create_experiment(name, artifact_location=artifacts))

    def _found(self, experiment: str, series: Series) -> str | None:
        """Return the run to go on with."""
        wanted = f"tags.`{_RUN}` = '{series.run.folder.name}'"
        for run in self._client.search_runs([experiment], wanted, max_results=1) if series.done else ():
            self._client.update_run(run.info.run_id, "RUNNING")
            return str(run.info.run_id)
        return None

    def _new(self, experiment: str, series: Series) -> str:
        name = series.run.folder.name
        run = str(self._client.create_run(experiment, run_name=name, tags={_RUN: name}).info.run_id)
        params = [Param(name, str(value)[:_LENGTH]) for name, value in flat(series.config, ".").items()]
        for start in range(0, len(params), _PARAMS):
            self._client.log_batch(run, params=params[start : start + _PARAMS])
        return run


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep MLflow's logging and its dependencies' warnings from the terminal; its errors are raised."""
    logger = logging.getLogger("mlflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)
