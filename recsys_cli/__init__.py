"""Train and evaluate recommenders from raw interactions, with one YAML file and one workspace folder.

`__init__.pyi` lists the Python API; its names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"
_API = (
    "Comparison", "Evaluation", "Events", "LoadedBundle", "Message", "PreparedData", "Progress", "Query", "Recommendations",
    "RecsysError", "RunConfig", "TrainedRun", "Workspace", "compare", "config_from_frame", "dataset_from_frames", "download",
    "etl", "evaluate", "export", "load_bundle", "load_config", "train",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("recsys_cli.api"), name)


def __dir__() -> list[str]:
    return [*_API, "__version__"]
