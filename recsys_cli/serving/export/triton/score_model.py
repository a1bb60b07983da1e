"""Triton model: raw rows to scores. A copy from recsys_cli; settings are in config.pbtxt, data is in the bundle."""

from recsys_cli.serving.export.triton.backend import ScoreModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
