"""What of a rating is predicted on the fixed splits of MovieLens: whether it is above 3, or the rating itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fixed_splits import FIGURES

IDS = [
    {"op": "JoinExternal", "table": "movies", "on": "movieId", "columns": ["genres"]},
    {"op": "Categorify", "columns": ["userId", "movieId", "genres"]},
]
COLUMNS = {"user": "userId", "item": "movieId", "timestamp": "timestamp"}
LIKED = {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"}
STARS = {"op": "LambdaOp", "expression": "(rating - 0.5) / 4.5", "output": "stars", "dtype": "float32"}
HELD_OUT = "hold out 5 % of train to choose their epoch by"


@dataclass(frozen=True)
class Task:
    """One thing to predict.

    Attributes:
        results: Name of the file of its figures.
        work: What they are figures of, in a sentence.
        features: The section of a config.
        graded: The same for models that learn all at once.
        figures: Names of what is measured on the rows of test.
        baselines: Whose figures are kept beside a model's own: of the same rows, learnt from the same part of train.
        models: Those that are measured where nobody names others; None for all ranking models.
        peers: What shared/baselines/quality.md has for the same rows, by model.
    """

    results: str
    work: str
    features: dict[str, Any]
    graded: dict[str, Any]
    figures: tuple[str, ...]
    baselines: tuple[str, ...] = ()
    models: tuple[str, ...] | None = None
    peers: dict[str, dict[str, float]] | None = None


FEATURES = {**COLUMNS, "label": "label", "ops": [*IDS, LIKED]}
NUMBERS = {**COLUMNS, "label": {"name": "rating", "task": "regression"}, "ops": IDS}
TASKS = {
    "liked": Task(
        results="quality_ranking",
        work=(
            "fixed random split of ml-latest-small, label rating > 3, test rows; each model with its own defaults; models that "
            f"learn all at once have the rating as a second label, the others {HELD_OUT}"
        ),
        features=FEATURES,
        # The second label is the rating itself; the first one is what is measured.
        graded={**FEATURES, "label": ["label", "stars"], "ops": [*FEATURES["ops"], STARS]},
        figures=FIGURES,
        peers={
            "bias_lr": {"auc": 0.7944, "log_loss": 0.5263, "accuracy": 0.7366},
            "fm": {"auc": 0.7964, "log_loss": 0.5275, "accuracy": 0.7384},
            "mlp": {"auc": 0.7819, "log_loss": 0.5443, "accuracy": 0.7237},
            "mlp_reg": {"auc": 0.7960, "log_loss": 0.5332, "accuracy": 0.7303},
            "gbm_te": {"auc": 0.8209, "log_loss": 0.4963, "accuracy": 0.7560},
            "gbm_cf": {"auc": 0.8282, "log_loss": 0.4883, "accuracy": 0.7602},
        },
    ),
    "rating": Task(
        results="quality_ratings",
        work=(
            "fixed random split of ml-latest-small, the rating as a number, test rows; each model with its own defaults, which "
            f"were chosen for another label (rating > 3); models that do not learn all at once {HELD_OUT}"
        ),
        features=NUMBERS,
        graded=NUMBERS,
        figures=("rmse", "mae"),
        baselines=("user and item mean", "constant"),
        models=("logistic", "fm", "deepfm", "mlp", "lightgbm"),
    ),
}
