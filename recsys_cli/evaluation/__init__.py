"""Evaluation of trained models: metrics, full ranking, baselines and the report. Importing it does not import torch."""

from __future__ import annotations

from recsys_cli.evaluation.result import Ceiling, Counts, Curve, Estimate, Evaluation, Measurements, Protocol

__all__ = ["Ceiling", "Counts", "Curve", "Estimate", "Evaluation", "Measurements", "Protocol"]
