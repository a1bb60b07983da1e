"""Metrics of scores against labels: of binary labels, of numeric labels, and within users."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from recsys_cli.metrics.metric import (
    Better,
    ByRow,
    Floats,
    GroupedMetric,
    Influence,
    PointwiseMetric,
    ScoreCounts,
    Summary,
    by_name,
    count_runs,
    mean_influence,
    mean_of,
    run_starts,
)
from recsys_cli.packages import np, npt

_OfScores = Callable[[ScoreCounts], tuple[Floats, Floats]]


def _mean(
    name: str, title: str, better: Better, values: _OfScores, *, root: bool = False, **options: Any
) -> PointwiseMetric:
    """Return the metric of the mean, or its root, over values of a positive and of a negative row of each score, each (G,)."""

    def compute(counts: ScoreCounts) -> float:
        mean = mean_of(*values(counts), counts)
        return math.sqrt(mean) if root else mean

    def influence(counts: ScoreCounts) -> Influence:
        of_mean = mean_influence(*values(counts), counts)
        if not root:
            return of_mean
        value = compute(counts)
        slope = 1 / (2 * value) if value else 0.0
        return np.asarray(of_mean[0] * slope), np.asarray(of_mean[1] * slope)

    return PointwiseMetric(name, title, better, compute, influence, **options)


def auc_of_groups(positive: Floats, negative: Floats, starts: npt.NDArray[np.integer]) -> Floats:
    """Return the area under the ROC curve within each of G groups, ties as 1/2; NaN for groups of one class.

    Exact, by the U statistic of Mann and Whitney (1947). `positive` and `negative` (S,) are rows of each score,
    ascending within a group, and `starts` (G,) each group's first score.
    """
    positives, negatives = np.add.reduceat(positive, starts), np.add.reduceat(negative, starts)
    earlier = np.cumsum(negatives) - negatives
    wins = np.add.reduceat(positive * _below(negative), starts) - positives * earlier
    pairs = positives * negatives
    return np.divide(wins, pairs, out=np.full_like(wins, np.nan), where=pairs > 0)


def auc(counts: ScoreCounts) -> float:
    """Return the area under the ROC curve, ties as 1/2; NaN with rows of one class only."""
    if not len(counts.logits):
        return np.nan
    return float(auc_of_groups(counts.positive, counts.negative, np.zeros(1, np.int64))[0])


def placements(counts: ScoreCounts) -> tuple[Floats, Floats]:
    """Return the placement of a positive and of a negative row of each score; each (G,).

    A placement is the share of correctly ordered rows of the other class. Its mean over either class is the AUC
    (DeLong, DeLong and Clarke-Pearson, 1988).
    """
    return _below(counts.negative) / counts.negative.sum(), 1 - _below(counts.positive) / counts.positive.sum()


def auc_influence(counts: ScoreCounts) -> Influence:
    """Return the difference of each row's placement from the AUC."""
    value, (of_positive, of_negative) = auc(counts), placements(counts)
    return (of_positive - value) / float(counts.positive.sum()), (of_negative - value) / float(counts.negative.sum())


def row_placements(labels: npt.ArrayLike, scores: npt.ArrayLike) -> Floats:
    """Return the placement of each row (N,); labels of both classes."""
    is_positive = np.asarray(labels) != 0
    counts, group = ScoreCounts.grouped(is_positive.astype(np.float32), scores)
    of_positive, of_negative = placements(counts)
    return np.where(is_positive, of_positive[group], of_negative[group])


def _below(counts: Floats) -> Floats:
    return np.cumsum(counts) - counts / 2


AUC = PointwiseMetric(
    "auc", "AUC", "higher", auc, auc_influence, of_probabilities=False, by_row=ByRow(row_placements, "class means")
)


def pr_auc(counts: ScoreCounts) -> float:
    """Return the average precision: the precision at each score, weighted by its share of the positives.

    The step function below the precision-recall curve, as in scikit-learn; linear interpolation is too optimistic
    (Davis and Goadrich, 2006). A constant score has the share of positives.
    """
    positive, precision, _ = _from_above(counts)
    total = float(positive.sum())
    return float(precision @ positive) / total if total else np.nan


def pr_auc_influence(counts: ScoreCounts) -> Influence:
    """Return the derivative by row weight: the row's own precision, and its effect on the precision of lower scores."""
    positive, precision, predicted = _from_above(counts)
    total = float(positive.sum())
    value = float(precision @ positive) / total
    changes = (positive * change / predicted for change in (1 - precision, precision))
    right, wrong = (np.cumsum(change[::-1])[::-1] for change in changes)
    return ((precision + right - value) / total)[::-1], (-wrong / total)[::-1]


def _from_above(counts: ScoreCounts) -> tuple[Floats, Floats, Floats]:
    """Return positives, precision and number of rows down to each score, from the highest score; each (G,)."""
    positive, predicted = counts.positive[::-1], np.cumsum(counts.rows[::-1])
    return positive, np.cumsum(positive) / predicted, predicted


PR_AUC = PointwiseMetric("pr_auc", "PR-AUC", "higher", pr_auc, pr_auc_influence, of_probabilities=False)


def gauc(
    users: npt.NDArray[np.integer], labels: npt.NDArray[np.float32], scores: npt.NDArray[np.floating]
) -> tuple[Floats, Floats]:
    """Return the AUC of each user with both classes, ties as 1/2, and the user's number of rows; each (G,).

    Their weighted mean is the GAUC of Zhu et al. (KDD 2017, Optimized Cost per Click in Taobao Display Advertising).
    """
    if not len(users):
        return np.empty(0), np.empty(0)
    order = np.lexsort((scores, users))
    starts = run_starts(users[order], scores[order])
    positive, rows = count_runs(labels[order] > 0.5, starts)
    of_user = run_starts(users[order][starts])
    values = auc_of_groups(positive, rows - positive, of_user)
    both = np.isfinite(values)
    return values[both], np.add.reduceat(rows, of_user)[both]


GAUC = GroupedMetric("gauc", "GAUC", gauc)


def losses(counts: ScoreCounts) -> tuple[Floats, Floats]:
    """Return the loss of a positive and of a negative row of each score; each (G,)."""
    if_positive = row_losses(np.ones(1), counts.logits)
    return if_positive, if_positive + counts.logits


def row_losses(labels: npt.ArrayLike, logits: npt.ArrayLike) -> Floats:
    """Return the binary cross-entropy of each row; labels (N,), logits (N,)."""
    wide = np.asarray(logits, dtype=np.float64)
    return np.logaddexp(0, np.where(np.asarray(labels) != 0, -wide, wide))


LOG_LOSS = _mean("log_loss", "log loss", "lower", losses, by_row=ByRow(row_losses))


def normalized_entropy(counts: ScoreCounts) -> float:
    """Return log loss / entropy of the mean label (He et al., ADKDD 2014); 1 for a constant prediction."""
    mean = _mean_label(counts)
    return LOG_LOSS.compute(counts) / _entropy(mean) if 0 < mean < 1 else np.nan


def entropy_influence(counts: ScoreCounts) -> Influence:
    """Return the derivative by row weight, through the log loss and through the entropy."""
    mean, value = _mean_label(counts), normalized_entropy(counts)
    entropy, slope = _entropy(mean), math.log((1 - mean) / mean)
    of_loss = LOG_LOSS.influence(counts)
    of_mean = ((label - mean) / float(counts.rows.sum()) for label in (1, 0))
    positive, negative = (
        (loss - value * slope * label) / entropy for loss, label in zip(of_loss, of_mean, strict=True)
    )
    return positive, negative


def _mean_label(counts: ScoreCounts) -> float:
    rows = float(counts.rows.sum())
    return float(counts.positive.sum()) / rows if rows else 0.0


def _entropy(mean: float) -> float:
    return -(mean * math.log(mean) + (1 - mean) * math.log1p(-mean))


NORMALIZED_ENTROPY = PointwiseMetric(
    "normalized_entropy", "normalized entropy", "lower", normalized_entropy, entropy_influence
)


def _correct(counts: ScoreCounts) -> tuple[Floats, Floats]:
    """Return whether a prediction is correct, with probabilities of 0.5 and more as positive."""
    predicted: Floats = np.where(counts.logits >= 0, 1.0, 0.0)
    return predicted, 1.0 - predicted


ACCURACY = _mean("accuracy", "accuracy", "higher", _correct)


def f1(counts: ScoreCounts) -> float:
    """Return 2 TP / (2 TP + FP + FN), with probabilities of 0.5 and more as positive."""
    total = _predicted_plus_actual(counts)
    return 2 * float(counts.positive[counts.logits >= 0].sum()) / total if total else np.nan


def f1_influence(counts: ScoreCounts) -> Influence:
    """Return the derivative of the ratio by each row's weight."""
    predicted, value, total = counts.logits >= 0, f1(counts), _predicted_plus_actual(counts)
    return np.where(predicted, 2 - 2 * value, -value) / total, np.where(predicted, -value, 0.0) / total


def _predicted_plus_actual(counts: ScoreCounts) -> float:
    return float(counts.rows[counts.logits >= 0].sum() + counts.positive.sum())


F1 = PointwiseMetric("f1", "F1", "higher", f1, f1_influence)


def _errors(power: int) -> _OfScores:
    """Return |probability - label| to a power: squared the score of Brier (1950), else no proper score: it favors 0 and 1."""
    return lambda counts: ((1 - counts.probabilities) ** power, counts.probabilities**power)


def _of_numbers(power: int) -> _OfScores:
    return lambda counts: (np.abs(counts.logits) ** power,) * 2


def _by_row(power: int, summary: Summary) -> ByRow:
    return ByRow(lambda labels, found: np.abs(np.subtract(found, labels, dtype=np.float64)) ** power, summary)


RMSE = _mean("rmse", "RMSE", "lower", _errors(2), root=True)
RMSE_OF_ERRORS = _mean(
    "rmse", "RMSE", "lower", _of_numbers(2), root=True, by_row=_by_row(2, "root mean"), of_errors=True
)
MAE = _mean("mae", "MAE", "lower", _errors(1))
MAE_OF_ERRORS = _mean("mae", "MAE", "lower", _of_numbers(1), by_row=_by_row(1, "mean"), of_errors=True)


BINS = 15


def ece(counts: ScoreCounts) -> float:
    """Return the mean over rows of |mean label - mean prediction| of their bin.

    Naeini, Cooper and Hauskrecht (2015), with bins of equal mass (Nixon et al., 2019); equal scores share a bin.
    """
    return float(np.abs(parts(counts)[1]).sum()) if len(counts.logits) else np.nan


def parts(counts: ScoreCounts) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the bin of each score, (G,), and each bin's sum of label - prediction, over the number of rows, (BINS,)."""
    of_bin = counts.quantiles(BINS)
    above = counts.positive - counts.rows * counts.probabilities
    return of_bin, _totals(of_bin, above) / max(1.0, float(counts.rows.sum()))


def ece_influence(counts: ScoreCounts) -> Influence:
    """Return the contribution of each row to the part of its bin."""
    rows = float(counts.rows.sum())
    return (1 - counts.probabilities) / rows, -counts.probabilities / rows


def reliability(counts: ScoreCounts) -> tuple[Floats, Floats]:
    """Return the mean prediction and the mean label of each non-empty bin."""
    of_bin = counts.quantiles(BINS)
    rows, predicted, positive = (
        _totals(of_bin, values) for values in (counts.rows, counts.rows * counts.probabilities, counts.positive)
    )
    filled = rows > 0
    return predicted[filled] / rows[filled], positive[filled] / rows[filled]


def _totals(of_bin: npt.NDArray[np.int64], values: Floats) -> Floats:
    return np.bincount(of_bin, weights=values, minlength=BINS).astype(np.float64)


ECE = PointwiseMetric("ece", "calibration error (ECE)", "lower", ece, ece_influence, parts=parts)


def calibration(counts: ScoreCounts) -> float:
    """Return mean prediction / mean label; overestimation above 1; NaN without positive rows."""
    positive = float(counts.positive.sum())
    return float(counts.rows @ counts.probabilities) / positive if positive else np.nan


def calibration_influence(counts: ScoreCounts) -> Influence:
    """Return the derivative of the ratio by each row's weight."""
    positive, value = float(counts.positive.sum()), calibration(counts)
    return (counts.probabilities - value) / positive, counts.probabilities / positive


CALIBRATION = PointwiseMetric("calibration", "mean prediction / mean label", "one", calibration, calibration_influence)


POINTWISE: dict[str, PointwiseMetric] = by_name(
    AUC, PR_AUC, LOG_LOSS, NORMALIZED_ENTROPY, ACCURACY, F1, RMSE, MAE, ECE, CALIBRATION
)
"""Metrics of scores against binary labels, by name, in table order."""

OF_NUMBERS: dict[str, PointwiseMetric] = by_name(RMSE_OF_ERRORS, MAE_OF_ERRORS)
"""Metrics of numeric predictions, in the units of the label, by name, in table order. Computed from counts of errors:
the score of a row is its error."""

GROUPED: dict[str, GroupedMetric] = by_name(GAUC)
"""Metrics per user of scores against labels, by name; after the pointwise metrics in tables."""
