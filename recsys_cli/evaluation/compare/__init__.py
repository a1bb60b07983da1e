"""Comparison of runs: paired tests over the same users and rows. Importing it does not import torch."""

from __future__ import annotations
