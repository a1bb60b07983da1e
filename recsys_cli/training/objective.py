"""What training makes of the labels before any model sees them: weights for positive rows, and labels that are less sure."""

from __future__ import annotations

from dataclasses import replace

from recsys_cli.batch import Batch
from recsys_cli.training.goal import Goal


def aimed(batch: Batch, goal: Goal) -> Batch:
    """Return the batch that training minimises the loss of; validation takes the one that there was.

    A positive row counts as much as the goal says, beside the weight that it has of its own; a label between 0 and 1
    counts as that part of a positive row. Then labels are drawn towards 0.5: y becomes (1 - s) y + s / 2 (Szegedy et al.,
    "Rethinking the Inception architecture", 2016, for two classes); those that are numbers are not.
    """
    weight, labels = batch.weight, batch.labels
    if goal.positive_weight is not None:
        counts = 1 + (goal.positive_weight - 1) * labels[goal.label]
        weight = counts if weight is None else weight * counts
    if goal.label_smoothing:
        keep = 1 - goal.label_smoothing
        labels = {
            name: label if name in goal.numbers else label * keep + goal.label_smoothing / 2
            for name, label in labels.items()
        }
    return replace(batch, labels=labels, weight=weight)
