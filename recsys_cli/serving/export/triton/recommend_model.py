"""Triton model: users or histories to items. A copy from recsys_cli; settings are in config.pbtxt, data is in the bundle."""

from recsys_cli.serving.export.triton.backend import RecommendModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
