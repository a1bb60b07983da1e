"""One of several processes that train a run together, as `train.devices` starts them: python -m recsys_cli.stages.rank."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from recsys_cli.config import RunConfig
from recsys_cli.events import Event, ignore
from recsys_cli.stages.job import Job
from recsys_cli.stages.train import together
from recsys_cli.training.distributed import wire
from recsys_cli.training.distributed.launch import INTERRUPTED, served
from recsys_cli.workspace import PreparedData, Workspace


def main() -> int:
    """Do what the process that started this one says, and tell it how it goes; return the exit code."""
    with served() as (told, out):
        try:
            _train(told, out)
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception as error:  # whatever it is, it is raised again by the one that started this
            _say(out, wire.error_line(error))
            return 1
    return 0


def _train(told: dict[str, Any], out: TextIO) -> None:
    config, workspace = RunConfig.model_validate(told["config"]), Workspace(Path(told["workspace"]))

    def emit(event: Event) -> None:
        _say(out, wire.event_line(event))

    with together(config) as ranks:
        data, run = PreparedData(Path(told["data"])), workspace.run_named(told["run"])
        Job(data, config, run, workspace, emit if ranks.is_first else ignore, ranks).run(resume=told["resume"])


def _say(out: TextIO, line: str) -> None:
    with suppress(BrokenPipeError):  # nobody hears it any more, and the end of stdin says what to do then
        out.write(line + "\n")


if __name__ == "__main__":
    code = main()
    os._exit(code)  # the interpreter's own end would wait for a GPU that waits for a rank that is gone
