"""TensorBoard tracker: event files in RUN/tensorboard; `tensorboard --logdir workspace/runs` compares all runs."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter
from tensorboardX.summary import hparams, scalar

from recsys_cli.training.trackers import Series, flat


class TensorBoard:
    """Logs metrics as scalars, and the config as hyperparameters; events of earlier files after step `done` are purged.

    tensorboardX's SummaryWriter is not used: its thread dies on a full disk, and the eleventh event afterwards blocks
    forever.
    """

    rewinds: ClassVar[bool] = True

    def __init__(self, series: Series) -> None:
        folder = series.run.folder / "tensorboard"
        folder.mkdir(exist_ok=True)
        # TensorBoard's file name; the step makes it unique for a run resumed within a second.
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{series.done}"
        self._file = _Records(str(folder / name))
        try:
            self._begin(series)
        except BaseException:  # a full disk: nobody has this tracker yet, who could close it
            with suppress(OSError):
                self._file.close()
            raise

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log scalars."""
        for name, value in values.items():
            self._write(step=step, summary=scalar(name, value))
        self._file.flush()

    def close(self, *, finished: bool) -> None:
        """Write the end of the hyperparameters and close the file."""
        if finished:
            self._write(summary=self._end)
        self._file.close()

    def _begin(self, series: Series) -> None:
        self._write(file_version="brain.Event:2")
        if series.done:
            self._write(step=series.done + 1, session_log=SessionLog(status=SessionLog.SessionStatus.START))
        experiment, start, self._end = hparams(_plain(series.config), {})
        self._write(summary=experiment)
        self._write(summary=start)
        self._file.flush()

    def _write(self, **content: Any) -> None:
        self._file.write(Event(wall_time=time.time(), **content).SerializeToString())


class _Records(RecordWriter):
    """Record writer with a flush to the operating system but no fsync: a killed process loses no event."""

    def flush(self) -> None:
        self._writer.flush()


def _plain(config: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """Return the config by dotted names, with values other than numbers and booleans as text."""
    return {name: value if isinstance(value, int | float) else str(value) for name, value in flat(config, ".").items()}
