"""MLflow tracker."""

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
from recsys_cli.training.trackers import Series, flat

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
try:
    with warnings.catch_warnings(action="ignore"):  # deprecations in dependencies
        import alembic  # noqa: F401 - a local store needs it, and mlflow-skinny does not install it
        import sqlalchemy  # noqa: F401
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient
except ImportError as _error:
    raise MissingExtraError.for_extra("track", what="train.trackers: mlflow") from _error

_PARAMS, _LENGTH = 100, 500
"""MLflow's limits in all releases and stores: params per request, characters per param."""
_RUN = "recsys.run"
"""Tag with the name of the run, to find it on resume, because MLflow chooses its own ids."""


class MLflow:
    """Logs metrics, and the config as params, to one MLflow run.

    Without MLFLOW_TRACKING_URI, the store is WORKSPACE/mlflow/mlflow.db (MLflow 3 rejects plain folders). Show it with
    `mlflow ui --backend-store-uri sqlite:///workspace/mlflow/mlflow.db`.
    """

    rewinds: ClassVar[bool] = False

    def __init__(self, series: Series) -> None:
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        local = series.run.folder.absolute().parents[1] / "mlflow"
        if not uri:
            local.mkdir(exist_ok=True)
        with _quiet():
            self._client = MlflowClient(uri or f"sqlite:///{local / 'mlflow.db'}")
            experiment = self._experiment(None if uri else local)
            self._run = self._existing(experiment, series) or self._new(experiment, series)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log metrics."""
        now = int(1_000 * time.time())
        with _quiet():
            self._client.log_batch(self._run, [Metric(name, value, now, step) for name, value in values.items()])

    def close(self, *, finished: bool) -> None:
        """Set the final status of the run."""
        with _quiet():
            self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")

    def _experiment(self, local: Path | None) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "recsys")
        experiment = self._client.get_experiment_by_name(name)
        if experiment is not None:
            return str(experiment.experiment_id)
        artifacts = None if local is None else (local / "artifacts").as_uri()
        return str(self._client.create_experiment(name, artifact_location=artifacts))

    def _existing(self, experiment: str, series: Series) -> str | None:
        query = f"tags.`{_RUN}` = '{series.run.folder.name}'"
        for run in self._client.search_runs([experiment], query, max_results=1) if series.done else ():
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
    """Silence MLflow's logging and its dependencies' warnings; errors are still raised."""
    logger = logging.getLogger("mlflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)
