"""Worker process of a run with several `train.devices`: python -m recsys_cli.stages.rank."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from recsys_cli.config import RunConfig
from recsys_cli.events import Event
from recsys_cli.stages.processes import join_ranks
from recsys_cli.stages.train import train_run
from recsys_cli.training.launch import INTERRUPTED, error_line, event_line, worker_session
from recsys_cli.workspace import PreparedData, Workspace


def main() -> int:
    """Train this rank's part of a run, report to the parent process, and return the exit code."""
    with worker_session() as (job, out):
        try:
            _train(job, out)
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception as error:  # the parent process raises it again
            _send(out, error_line(error))
            return 1
    return 0


def _train(job: dict[str, Any], out: TextIO) -> None:
    config, workspace = RunConfig.model_validate(job["config"]), Workspace(Path(job["workspace"]))

    def emit(event: Event) -> None:
        _send(out, event_line(event))

    with join_ranks(config) as ranks:
        data, run = PreparedData(Path(job["data"])), workspace.run_named(job["run"])
        train_run(run, data, config, workspace, ranks=ranks, resume=job["resume"], emit=emit)


def _send(out: TextIO, line: str) -> None:
    with suppress(BrokenPipeError):  # the parent has ended, and the end of stdin interrupts this process
        out.write(line + "\n")


if __name__ == "__main__":
    code = main()
    os._exit(code)  # a normal exit would wait for GPU work that waits for a lost rank
