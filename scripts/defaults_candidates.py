"""Options that quality_defaults.py tries beside a model's defaults."""

from __future__ import annotations

from itertools import product
from typing import Any

Candidates = tuple[dict[str, Any], ...]


def grid(**values: tuple[Any, ...]) -> Candidates:
    """Return all combinations of values; `model__alpha` is the key model.alpha."""
    keys = [key.replace("__", ".") for key in values]
    return tuple(dict(zip(keys, chosen, strict=True)) for chosen in product(*values.values()))


OF_RANKINGS: dict[str, Candidates] = {
    "popularity": (),
    "ease": grid(model__regularization=(20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)),
    "item-knn": (
        *grid(model__num_neighbors=(20, 100, 200), model__shrinkage=(20.0,)),
        *grid(model__num_neighbors=(50,), model__shrinkage=(0.0, 5.0, 20.0)),
        *grid(model__num_neighbors=(200,), model__shrinkage=(0.0, 5.0, 100.0)),
        *grid(model__weighting=("tfidf", "bm25"), model__num_neighbors=(20, 50, 200)),
        *grid(model__num_neighbors=(10, 20), model__shrinkage=(50.0, 100.0)),
        *grid(model__weighting=("tfidf",), model__num_neighbors=(20, 50, 200), model__shrinkage=(100.0, 500.0)),
        *grid(model__num_neighbors=(50, 200), model__shrinkage=(500.0,)),
    ),
    "ials": (
        *grid(model__alpha=(0.01, 0.5, 1.0, 2.0, 8.0, 16.0)),
        *grid(model__embedding_dim=(32, 128)),
        *grid(model__regularization=(3.0, 7.0, 15.0, 22.0, 30.0, 40.0, 55.0, 80.0)),
        *grid(model__embedding_dim=(64, 128, 256), model__alpha=(1.0, 4.0, 16.0, 40.0, 100.0)),
    ),
    "mf": grid(train__epochs=(12,), model__regularization=(0.002, 0.01, 0.05, 0.1)),
    "sasrec": grid(model__dropout=(0.2, 0.3, 0.4, 0.5, 0.6)),
    "two-tower": grid(train__epochs=(20,)),
    "lightgcn": grid(train__epochs=(40,)),
}
"""Of models that rank, by what is monitored: NDCG@10."""
OF_ROWS: dict[str, Candidates] = {
    name: grid(train__epochs=(15,))
    for name in ("logistic", "fm", "mlp", "dcn-v2", "deepfm", "dlrm", "neumf", "wide-deep")
}
"""Of models that predict labels: AUC."""
