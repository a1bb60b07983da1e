"""One of the processes of a run that `train.devices` starts: python -m recsys_cli.stages.rank."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from recsys_cli.config import RunConfig
from recsys_cli.events import Event
from recsys_cli.stages.train import join_ranks, train_run
from recsys_cli.training.distributed import wire
from recsys_cli.training.distributed.launch import INTERRUPTED, worker_session
from recsys_cli.workspace import PreparedData, Workspace


def main() -> int:
    """Do this rank's part of a run, report to the parent process, and return the exit code."""
    with worker_session() as (job, out):
        try:
            _train(job, out)
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception as error:  # whatever it is, it is raised again by the one that started this
            _say(out, wire.error_line(error))
            return 1
    return 0


def _train(job: dict[str, Any], out: TextIO) -> None:
    config, workspace = RunConfig.model_validate(job["config"]), Workspace(Path(job["workspace"]))

    def emit(event: Event) -> None:
        _say(out, wire.event_line(event))

    with join_ranks(config) as ranks:
        data, run = PreparedData(Path(job["data"])), workspace.run_named(job["run"])
        train_run(run, data, config, workspace, ranks=ranks, resume=job["resume"], emit=emit)


def _say(out: TextIO, line: str) -> None:
    with suppress(BrokenPipeError):  # nobody hears it any more, and the end of stdin says what to do then
        out.write(line + "\n")


if __name__ == "__main__":
    code = main()
    os._exit(code)  # the interpreter's own end would wait for a GPU that waits for a rank that is gone
