"""The Python API: `import recsys_cli as recsys` loads these names on first use."""

from __future__ import annotations

from recsys_cli import cpu
from recsys_cli.api.configs import config_from_frame, dataset_from_frames, load_config
from recsys_cli.api.data import PreparedData
from recsys_cli.api.progress import Events
from recsys_cli.api.recommendations import Recommendations
from recsys_cli.api.run import TrainedRun
from recsys_cli.api.stages import compare, download, etl, evaluate, train
from recsys_cli.api.workspace import Workspace
from recsys_cli.config import RunConfig
from recsys_cli.errors import RecsysError
from recsys_cli.evaluation.compare.comparison import Comparison
from recsys_cli.evaluation.result import Evaluation
from recsys_cli.events import Message, Progress

__all__ = [
    "Comparison", "Evaluation", "Events", "Message", "PreparedData", "Progress", "Recommendations", "RecsysError", "RunConfig",
    "TrainedRun", "Workspace", "compare", "config_from_frame", "dataset_from_frames", "download", "etl", "evaluate",
    "load_config", "train",
]  # fmt: skip

cpu.configure_threads()  # before any stage loads torch
