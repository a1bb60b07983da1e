"""Evaluation of trained models: metrics, full ranking, baselines and the report.

Importing the package does not import torch: saved results can be read and shown without it. `measure` computes them.
"""

from __future__ import annotations

from recsys_cli.evaluation.result import Ceiling, Counts, Curve, Estimate, Evaluation, Measurements, Protocol

__all__ = ["Ceiling", "Counts", "Curve", "Estimate", "Evaluation", "Measurements", "Protocol"]
