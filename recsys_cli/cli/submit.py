"""The command `recsys submit`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.completion import complete_config
from recsys_cli.cli.params import Overrides, Overwrite, read_config
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console


def submit(  # noqa: PLR0913, PLR0917 - one parameter per option
    ctx: typer.Context,
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="Config file.", show_default=False, autocompletion=complete_config)
    ],
    overrides: Overrides = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="Write a script for sbatch.")] = False,
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="Write a TrainJob of Kubeflow Trainer.")] = False,
    ray: Annotated[bool, typer.Option("--ray", help="Write a RayJob of KubeRay.")] = False,
    nodes: Annotated[int, typer.Option(min=1, metavar="N", help="Number of nodes.")] = 1,
    processes: Annotated[int, typer.Option(min=1, metavar="N", help="Processes of each node, without GPUs.")] = 1,
    gpus: Annotated[int, typer.Option(min=0, metavar="N", help="GPUs of each node, with a process each.")] = 0,
    minutes: Annotated[int, typer.Option(min=0, metavar="N", help="Time limit; 0 is none.")] = 0,
    image: Annotated[str | None, typer.Option(metavar="IMAGE", help="Image with recsys.", show_default=False)] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Job file.", show_default="CONFIG.SCHEDULER")
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Submit the job with sbatch or kubectl.")] = False,
    force: Overwrite = False,
) -> None:
    """Write the job file of a training on a cluster, to edit and to submit."""
    session: Session = ctx.obj
    chosen = [name for name, is_set in (("slurm", slurm), ("kubernetes", kubernetes), ("ray", ray)) if is_set]
    if len(chosen) != 1:
        raise ConfigError("name one scheduler", hint="--slurm, --kubernetes or --ray")
    from recsys_cli.workspace.mirror import S3_MIRROR

    settings, path = read_config(session, [config, *(overrides or ())]), Path(config)
    around = path.absolute().parent if path.is_file() else Path.cwd()  # an included config is found by its name
    volume = Path(os.path.commonpath([Path.cwd(), session.root.absolute(), around]))
    if not slurm and (image is None or session.is_remote or volume == volume.parent):
        need = "an --image with recsys" if image is None else "config and workspace in one folder, a shared volume"
        raise ConfigError(f"--{chosen[0]} needs {need}")
    if session.is_remote and nodes > 1 and not os.environ.get(S3_MIRROR):
        raise ConfigError("several nodes share one mirror of the workspace", hint=f"export {S3_MIRROR}=SHARED_FOLDER")
    file = out or Path(f"{path.stem}.{chosen[0]}")
    with session.working("submit"):
        from recsys_cli.stages.submit import COMMANDS, job_file
        from recsys_cli.stages.submit import submit as hand_over
        from recsys_cli.workspace import check_output, write_text

        arguments = ["-w", session.address, "train", "--", config, *(overrides or ())]
        text = job_file(
            chosen[0], settings, session.workspace, arguments, name=path.stem, nodes=nodes, processes=gpus or processes,
            gpus=gpus > 0, minutes=minutes, image=image, folder=Path.cwd(), volume=volume,
        )  # fmt: skip
        check_output(file, force=force or (file.is_file() and file.read_text(encoding="utf-8") == text))
        write_text(file, text)
        answer = hand_over(chosen[0], file) if run else None
    following = None if run else shlex.join([*COMMANDS[chosen[0]], str(file)])
    session.report({"file": str(file), "text": text, "submitted": answer, "next": following}, _draw)


def _draw(to: Console, result: Mapping[str, Any]) -> None:
    line(to, result["text"])
    line(to, f"job file: {result['file']}")
    if result["submitted"]:
        line(to, f"submitted: {result['submitted']}")
