"""Are two systems really different: paired tests over the same users and the same rows, and how their answer is shown.

Importing the package costs no torch: everything is computed from what `recsys evaluate` has kept.
"""

from __future__ import annotations
