"""Options of negative sampling. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from recsys_cli.config.section import Section


class NegativeSamplingOptions(Section):
    """Options of retrieval models with sampled negatives."""

    num_negatives: PositiveInt | None = None
    """How many drawn items a positive is compared with, all equally likely: `bpr` takes their mean, `warp` tries one after the
    other, and for `softmax` all rows of a batch share them. None: 1 for bpr, 20 for warp, 512 for softmax."""
    filter_false_negatives: bool = True
    """Draw no item that the user has a positive of in train; for `softmax`, leave those out of the sum."""
    regularization: float | None = Field(None, ge=0)
    """L2 penalty: each row that is learnt from adds so many times the squared length of what is learnt for its user, its item and
    (their mean) its negatives to the loss of training. None: 0.002 for bpr, 0.05 for warp and softmax."""
