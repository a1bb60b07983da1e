"""How good a trained model is: metrics, full ranking, baselines and the report.

Importing the package costs no torch: what was measured can be read back and shown without it. Measuring is in `measure`.
"""

from __future__ import annotations

from recsys_cli.evaluation.result import Ceiling, Counts, Curve, Estimate, Evaluation, Measurements, Protocol

__all__ = ["Ceiling", "Counts", "Curve", "Estimate", "Evaluation", "Measurements", "Protocol"]
