"""The Python API: `import recsys_cli as recsys`. Guide: docs/python.md."""

# Bundles
from recsys_cli.api.bundle import LoadedBundle as LoadedBundle
from recsys_cli.api.bundle import load_bundle as load_bundle

# Configs
from recsys_cli.api.configs import config_from_frame as config_from_frame
from recsys_cli.api.configs import dataset_from_frames as dataset_from_frames
from recsys_cli.api.configs import load_config as load_config

# Artifacts
from recsys_cli.api.data import PreparedData as PreparedData

# Progress
from recsys_cli.api.progress import Events as Events
from recsys_cli.api.recommendations import Recommendations as Recommendations
from recsys_cli.api.run import TrainedRun as TrainedRun

# Stages
from recsys_cli.api.stages import compare as compare
from recsys_cli.api.stages import download as download
from recsys_cli.api.stages import etl as etl
from recsys_cli.api.stages import evaluate as evaluate
from recsys_cli.api.stages import export as export
from recsys_cli.api.stages import train as train
from recsys_cli.api.workspace import Workspace as Workspace
from recsys_cli.config import RunConfig as RunConfig
from recsys_cli.errors import RecsysError as RecsysError
from recsys_cli.evaluation.compare.comparison import Comparison as Comparison
from recsys_cli.evaluation.result import Evaluation as Evaluation
from recsys_cli.events import Message as Message
from recsys_cli.events import Progress as Progress
from recsys_cli.serving.query import Query as Query

__version__: str
