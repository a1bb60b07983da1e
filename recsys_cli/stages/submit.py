"""Job files of a training under torchrun: `slurm.sbatch.j2`, `kubernetes.yaml.j2`, `ray.yaml.j2`."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError, RecsysError
from recsys_cli.executors.ray_gang import VARIABLE
from recsys_cli.models import kind_of
from recsys_cli.registry import AUTO
from recsys_cli.stages.etl import prepared_data
from recsys_cli.workspace import Workspace

COMMANDS = {
    "slurm": ["sbatch", "--parsable"],
    "kubernetes": ["kubectl", "apply", "-f"],
    "ray": ["kubectl", "apply", "-f"],
}
"""Commands that submit a job file, by scheduler."""
_RESTARTS = 3


def job_file(  # noqa: PLR0913 - as many options as the command
    scheduler: str, config: RunConfig, workspace: Workspace, arguments: list[str], *,
    name: str, nodes: int, processes: int, gpus: bool, **options: Any,
) -> str:  # fmt: skip
    """Return the job file of a training; everything in it is quoted.

    Args:
        scheduler: A key of `COMMANDS`.
        config: Config of the training.
        workspace: Workspace with its prepared data.
        arguments: Arguments of `recsys` in each process.
        name: Name of the job.
        nodes: Number of nodes.
        processes: Number of processes of each node.
        gpus: Whether each process has a GPU.
        options: The working `folder`, the `volume` around it, `minutes` and `image`.

    Raises:
        MissingArtifactError: The data is not prepared.
        ConfigError: The model does not train in several processes.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    prepared_data(config, workspace)
    model = config.model.name
    if nodes * processes > 1 and (model == AUTO or kind_of(model).rows == "all"):
        raise ConfigError(f"{model} trains in one process", hint="use one node and one process, or set model.name")
    torchrun = [f"--nnodes={nodes}", f"--nproc-per-node={processes}", f"--max-restarts={_RESTARTS}"]
    torchrun += ["-m", "recsys_cli", *arguments]
    gang = json.dumps({"nodes": nodes, "processes": processes, "gpus": gpus, "torchrun": torchrun})
    environment = Environment(  # noqa: S701 - not HTML
        loader=PackageLoader(__package__, ""), finalize=_for_shell if scheduler == "slurm" else _for_yaml,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined,
    )  # fmt: skip
    template = environment.get_template(f"{scheduler}.{'sbatch' if scheduler == 'slurm' else 'yaml'}.j2")
    words = re.findall("[a-z0-9]+", name.lower())  # names allow letters, digits and hyphens
    return template.render(
        options, name="-".join(["recsys", *words])[:40].rstrip("-"), nodes=nodes, processes=processes, gpus=gpus,
        torchrun=torchrun, gang=gang, variable=VARIABLE, restarts=_RESTARTS, python=sys.executable,
    )  # fmt: skip


def _for_shell(value: str | int | list[str]) -> str:
    return shlex.join(value) if isinstance(value, list) else shlex.quote(str(value))


def _for_yaml(value: str | int | Path) -> str | int:
    """Quote a text for YAML; Kubernetes expands `$(NAME)` in commands and variables."""
    if isinstance(value, int):
        return value
    return yaml.safe_dump(str(value).replace("$(", "$$("), default_style='"', width=sys.maxsize).strip()


def submit(scheduler: str, file: Path) -> str:
    """Submit a job file and return the answer of the scheduler's command.

    Raises:
        ConfigError: The command is not installed.
        RecsysError: The scheduler refuses the job.
    """
    name, *options = COMMANDS[scheduler]
    command = shutil.which(name)
    if command is None:
        raise ConfigError(f"{name} is not installed here", hint=f"submit {file} where it is")
    done = subprocess.run([command, *options, str(file.absolute())], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RecsysError(f"{name}: {done.stderr.strip()}", hint=f"edit {file} and submit it again")
    return done.stdout.strip()
