"""The Python API: `import recsys_cli as recsys` loads these names on first use, each with its own module only."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from recsys_cli import cpu

_MODULES = {
    "Comparison": "recsys_cli.evaluation.compare.comparison",
    "Evaluation": "recsys_cli.evaluation.result",
    "Events": "recsys_cli.api.progress",
    "LoadedBundle": "recsys_cli.api.bundle",
    "Message": "recsys_cli.events",
    "PreparedData": "recsys_cli.api.data",
    "Progress": "recsys_cli.events",
    "Query": "recsys_cli.serving.query",
    "Recommendations": "recsys_cli.api.recommendations",
    "RecsysError": "recsys_cli.errors",
    "RunConfig": "recsys_cli.config",
    "TrainedRun": "recsys_cli.api.run",
    "Workspace": "recsys_cli.api.workspace",
    "compare": "recsys_cli.api.stages",
    "config_from_frame": "recsys_cli.api.configs",
    "dataset_from_frames": "recsys_cli.api.configs",
    "download": "recsys_cli.api.stages",
    "etl": "recsys_cli.api.stages",
    "evaluate": "recsys_cli.api.stages",
    "export": "recsys_cli.api.stages",
    "load_bundle": "recsys_cli.api.bundle",
    "load_config": "recsys_cli.api.configs",
    "train": "recsys_cli.api.stages",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


cpu.configure_threads()  # before any stage loads torch
