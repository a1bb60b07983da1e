"""Options of the models of the interaction matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from recsys_cli.config.section import Section

WORK = 5e11
"""Maximum multiplications of a baseline, or of a candidate of `auto`: about ten seconds on two cores, under one on a GPU."""
SPARSE_WORK, SPARSE_MIB = 1e10, 512
"""Maximum of items × (rows + 5 items) with the largest weights of EASE, about a minute on two cores, and their memory budget."""
_WORK_OF_A_PAIR = 6_000
"""Multiplications in the time of a pair of items of one user, times 4: the mean square of lengths over the squared mean."""


class ColdItemOptions(Section):
    """Options of dot-product models for items absent from train."""

    cold_items: Literal["all"] | tuple[str, ...] | None = Field(None, exclude_if=lambda cold: cold is None)
    """Features of the item table that rank items absent from train: `all`, or names. Their vectors are a ridge regression of the
    features on the trained vectors, with a penalty by leave-one-out."""


class HistoryOptions(Section):
    """Options of models fitted to the interaction matrix instead of labels."""

    train_defaults: ClassVar[Mapping[str, Any]] = {"monitor": "ndcg@10"}
    format: ClassVar[int] = 2

    positive_only: bool = False
    """Use positive interactions only, not all: those with label 1, or with a numeric label above its mean in train."""


OWN_FIRST = "popularity, own items first"
"""Label of the baseline and the candidate of repeats."""


class PopularityConfig(HistoryOptions):
    """Popularity: ranks items by their number of interactions in train, as weighted; the baseline for every other model."""

    # In seconds: from a day to three years.
    search_space: ClassVar[Mapping[str, Any]] = {"model.half_life": {"low": 86_400.0, "high": 1e8, "log": True}}

    half_life: float | None = Field(None, gt=0)
    """Half-life of an interaction's weight, in seconds, or in the unit of numeric timestamps. None for no decay."""
    window: float | None = Field(None, gt=0)
    """Length of the time window before the last interaction, in seconds as above. None for all interactions."""
    within: str | None = None
    """Item feature, such as genres: items with one of the user's favorite values rank first. None for one ranking for all users."""
    num_favorites: PositiveInt = 3
    """Number of favorite values per user: the most frequent values in the user history."""
    own_first: bool = False
    """Items of the user history rank first, by their rows in it: GP-TopFreq of Li et al. (TOIS 2023), the baseline of repeat
    purchases. With a half-life late rows count more. Only for evaluate.repeats."""


class ItemKNNConfig(HistoryOptions):
    """ItemKNN: scores an item by its cosine similarity to the user's history, over each item's nearest neighbors.

    After Sarwar, Karypis, Konstan and Riedl, "Item-Based Collaborative Filtering Recommendation Algorithms" (2001).
    """

    search_space: ClassVar[Mapping[str, Any]] = {
        "model.num_neighbors": {"choices": [20, 50, 100, 200, 500]},
        "model.weighting": {"choices": ["none", "tfidf", "bm25"]},
        "model.shrinkage": {"low": 1.0, "high": 1_000.0, "log": True},
    }

    num_neighbors: PositiveInt = 50
    """Number of nearest neighbors per item, without the item itself."""
    weighting: Literal["none", "tfidf", "bm25"] = "none"
    """Weights of interactions: all equal (`none`), lower for users with many items (`tfidf`), or also lower for popular items
    (`bm25`)."""
    normalize: bool = True
    """Divide co-occurrences by the norms of both items, as cosine similarity does; without it popular items are near to all."""
    shrinkage: float = Field(100.0, ge=0)
    """Shrinkage added to the product of the norms, against high similarity from few common users."""
    k1: float = Field(1.2, ge=0)
    """BM25 `k1`: range of the popularity weights; 0 gives all items the same weight."""
    b: float = Field(0.75, ge=0, le=1)
    """BM25 `b`: length normalization. 0 ignores item popularity, 1 fully down-weights interactions with popular items."""


class GraphFilterConfig(HistoryOptions):
    """Low-pass filter of the item graph, without training: near items by common users, and the first singular vectors.

    After Shen et al., "How Powerful is Graph Convolution for Recommendation?" (2021), GF-CF, and Park et al., "Turbo-CF: Matrix
    Decomposition-Free Graph Filtering for Fast Recommendation" (2024).
    """

    search_space: ClassVar[Mapping[str, Any]] = {
        "model.normalization": {"low": 0.3, "high": 0.7},
        "model.power": {"low": 0.5, "high": 2.0},
        "model.smooth": {"low": 0.0, "high": 1.0},
    }

    # Chosen on valid of Toys, MovieTweetings and Gowalla check-ins; MovieLens prefers 0.5, 0.3 and 64 vectors.
    normalization: float = Field(0.6, ge=0, le=1)
    """Power a of the numbers of items of a user, against 1 - a of the numbers of users of an item: 0.5 is symmetric, and smaller
    values rank popular items lower."""
    power: float = Field(1.0, gt=0)
    """Elementwise power of the weights between near items: above 1 the nearest count more."""
    num_neighbors: PositiveInt = 200
    """Number of weights kept per item, on average, the largest of all."""
    embedding_dim: NonNegativeInt = 256
    """Number of singular vectors of the ideal low-pass filter; 0 for none (Turbo-CF)."""
    smooth: float = Field(1.0, ge=0)
    """Weight of the ideal low-pass filter."""


class EASEConfig(HistoryOptions):
    """EASE: item-to-item weights of a linear autoencoder without self-similarity, in closed form; a strong baseline.

    After Steck, "Embarrassingly Shallow Autoencoders for Sparse Data" (2019).
    """

    search_space: ClassVar[Mapping[str, Any]] = {"model.regularization": {"low": 1.0, "high": 50_000.0, "log": True}}

    format: ClassVar[int] = 5

    regularization: float | None = Field(None, gt=0)
    """L2 penalty λ of the weights. None: chosen by leave-one-out cross-validation on train, from 1, 2, 5, …, 50,000."""
    max_items: PositiveInt | None = None
    """Number of items with weights, by popularity; all others score 0. None for all."""
    memory_mib: PositiveInt = 2_048
    """Memory budget of fitting in MiB: 2,048 MiB hold all weights of 18,900 items, or of few users. For more items, weights
    are fitted by conjugate gradients, and at most the 100 largest per item are kept, too few for users with very many items.
    Badly conditioned systems are solved in float64 where that fits, up to 12,300 items."""


def affordable_ease(num_users: int, num_items: int, num_rows: int) -> dict[str, int]:
    """Return the options of EASE within `WORK`: for all weights, the largest, or those of popular items."""
    pairs = _WORK_OF_A_PAIR * num_rows**2 / max(1, num_users)
    counts, factors = min(num_users * num_items**2, pairs), min(num_users, num_items) ** 2 * num_items
    if counts + factors <= WORK:
        return {}
    dense = int(max(math.sqrt(WORK / max(1, num_users)), max(0.0, WORK - pairs) ** (1 / 3), 1))
    # most items n with n (rows + 5 n) within the work, the root of a quadratic
    sparse = int((math.sqrt(num_rows**2 + 20 * SPARSE_WORK) - num_rows) / 10)
    memory = {"memory_mib": SPARSE_MIB} if sparse > dense else {}
    most = max(dense, sparse)
    return memory | ({"max_items": most} if most < num_items else {})


class SLIMConfig(HistoryOptions):
    """SLIM: sparse, non-negative item-to-item weights by one elastic net per item.

    After Ning and Karypis, "SLIM: Sparse Linear Methods for Top-N Recommender Systems" (2011).
    """

    search_space: ClassVar[Mapping[str, Any]] = {
        "model.l1": {"low": 0.05, "high": 20.0, "log": True},
        "model.l2": {"low": 1.0, "high": 1_000.0, "log": True},
    }

    l1: float = Field(1.0, ge=0)
    """L1 penalty λ of the weights; larger values give more zeros."""
    l2: float = Field(50.0, ge=0)
    """L2 penalty β, on half of the squared weights."""
    max_items: PositiveInt = 3_000
    """Number of items with weights, by popularity; all others score 0. Memory grows with its square, time with its cube."""
    tolerance: float = Field(1e-2, gt=0)
    """Convergence threshold: largest change of a weight in one sweep of coordinate descent."""
    max_sweeps: PositiveInt = 100
    """Maximum sweeps of coordinate descent per item."""


class IALSConfig(ColdItemOptions, HistoryOptions):
    """iALS: implicit-feedback matrix factorization by alternating least squares, confidence-weighted.

    After Hu, Koren and Volinsky, "Collaborative Filtering for Implicit Feedback Datasets" (2008). Needs `recsys-cli[implicit]`.
    """

    search_space: ClassVar[Mapping[str, Any]] = {
        "model.embedding_dim": {"choices": [32, 64, 128, 256]},
        "model.alpha": {"low": 0.5, "high": 200.0, "log": True},
        "model.regularization": {"low": 1.0, "high": 200.0, "log": True},
    }

    format: ClassVar[int] = 5

    embedding_dim: PositiveInt = 128
    """Width of the user and item factors."""
    regularization: float | None = Field(None, gt=0)
    """L2 penalty λ of the factors. None: the square root of the geometric mean of the summed confidence per user and per item,
    each averaged over interactions; 2, 4 or 8 times as much where items held out of train rank better."""
    alpha: float | None = Field(None, gt=0)
    """Confidence c = 1 + alpha r of an interaction, against 1 for all other pairs. r is the number of rows of the pair, or the sum
    of their weights, times their labels where the label is numeric. None: the root of the number of pairs per interaction, at most
    100, in units of the mean r: more for sparser data."""
    iterations: PositiveInt = 10
    """Number of alternations, each over all users and then all items."""
