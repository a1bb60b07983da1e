"""Comparison of runs: paired tests over the same users and rows, and their tables and pages.

Importing the package does not import torch: all input is saved by `recsys evaluate`.
"""

from __future__ import annotations
