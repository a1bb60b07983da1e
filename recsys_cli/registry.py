"""Names that a config may use, as literal tables of import paths; resolved on use, so that listing costs nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from recsys_cli import plugins
from recsys_cli.errors import ConfigError

# Dataset name → "module:function"; the function takes (name, options) and returns a Source.
DATASETS: dict[str, str] = {
    "movielens-100k": "recsys_cli.data.movielens:source",
    "movielens-1m": "recsys_cli.data.movielens:source",
    "movielens-10m": "recsys_cli.data.movielens:source",
    "movielens-20m": "recsys_cli.data.movielens:source",
    "movielens-25m": "recsys_cli.data.movielens:source",
    "movielens-32m": "recsys_cli.data.movielens:source",
    "movielens-latest-small": "recsys_cli.data.movielens:source",
    "synthetic": "recsys_cli.data.synthetic:source",
    "synthetic-small": "recsys_cli.data.synthetic:source",
    "synthetic-25m": "recsys_cli.data.synthetic:source",
    "files": "recsys_cli.data.files:source",
}

# Engine name → "module:Class", an etl.engine.Engine; etl.engines has their ranks for `auto`.
ENGINES: dict[str, str] = {
    "polars": "recsys_cli.etl.polars_engine.engine:PolarsEngine",
    "nvtabular": "recsys_cli.etl.nvtabular_engine.engine:NVTabularEngine",
}

# Model name → package with `config.Config` (no torch, so a config is checked without loading it) and `model.Model`.
MODELS: dict[str, str] = {
    "mlp": "recsys_cli.models.mlp",
    "dcn-v2": "recsys_cli.models.dcn_v2",
    "deepfm": "recsys_cli.models.deepfm",
    "dlrm": "recsys_cli.models.dlrm",
    "fm": "recsys_cli.models.fm",
    "logistic": "recsys_cli.models.logistic",
    "neumf": "recsys_cli.models.neumf",
    "wide-deep": "recsys_cli.models.wide_deep",
    "lightgbm": "recsys_cli.models.lightgbm",
    "popularity": "recsys_cli.models.popularity",
    "item-knn": "recsys_cli.models.item_knn",
    "ease": "recsys_cli.models.ease",
    "slim": "recsys_cli.models.slim",
    "ials": "recsys_cli.models.ials",
    "sasrec": "recsys_cli.models.sasrec",
    "gru4rec": "recsys_cli.models.gru4rec",
    "bert4rec": "recsys_cli.models.bert4rec",
    "lightgcn": "recsys_cli.models.lightgcn",
    "mf": "recsys_cli.models.mf",
    "two-tower": "recsys_cli.models.two_tower",
}
DEFAULT_MODEL = "mlp"
"""The model of a config that names none."""

RANK, PREDICT = "rank the catalog", "predict labels of given rows"
"""What a model is for: which items will a user choose, and how will a user like an item that is chosen already."""

# Model name → what it is for, and when to take it. Best first, by NDCG@10 of scripts/results/quality_topk.json (leave-last-out) and
# by AUC of quality_ranking.json, both on MovieLens latest-small; other data may order them differently, which recsys bench tells.
ADVICE: dict[str, tuple[str, str]] = {
    "sasrec": (RANK, "the order of interactions matters, and there is a timestamp"),
    "ease": (RANK, "the first to try: closed form, one penalty to set; up to some ten thousand items"),
    "gru4rec": (RANK, "sequences and sessions, with a smaller model than sasrec"),
    "slim": (RANK, "as ease, with few weights per item that can be read"),
    "two-tower": (RANK, "new items and users with features of their own"),
    "ials": (RANK, "many users and items, implicit counts; vectors for nearest neighbors"),
    "bert4rec": (RANK, "sequences read in both directions; needs many epochs"),
    "item-knn": (RANK, "a recommendation has to be explained by similar items"),
    "mf": (RANK, "vectors for users and items, trained by gradient with a choice of losses"),
    "lightgcn": (RANK, "a graph baseline to compare with published results"),
    "popularity": (RANK, "what every other model has to beat; new users"),
    "lightgbm": (PREDICT, "the first to try on up to some million rows, with features or a graded second label"),
    "fm": (PREDICT, "a small fast model of pairs of features"),
    "dlrm": (PREDICT, "many categories and numbers, as in ads; tables larger than a GPU"),
    "wide-deep": (PREDICT, "features to memorize beside features to generalize from"),
    "dcn-v2": (PREDICT, "crosses of many features, much data"),
    "mlp": (PREDICT, "the network of the Merlin notebooks, to compare with them"),
    "deepfm": (PREDICT, "as fm, with a deep part for more data"),
    "logistic": (PREDICT, "a linear baseline whose weights can be read"),
    "neumf": (PREDICT, "user and item alone"),
}

# Tracker name → "module:Class", a training.trackers.tracker.Tracker.
TRACKERS: dict[str, str] = {
    "tensorboard": "recsys_cli.training.trackers.tensorboard:TensorBoard",
    "mlflow": "recsys_cli.training.trackers.mlflow:MLflow",
    "wandb": "recsys_cli.training.trackers.wandb:WandB",
}


def suggest(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean X?)" for the nearest known name, or nothing where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def load(path: str) -> Any:
    """Import what "module:attribute" names: an entry of a table here, or what `lookup` returned.

    Raises:
        ConfigError: Code of another package does not exist, or cannot be imported.
    """
    module, _, attribute = path.partition(":")
    if not is_own(path):
        return plugins.load(path)
    return getattr(import_module(module), attribute)


def is_own(path: str) -> bool:
    """Whether an import path leads to a component of this package."""
    return path.startswith("recsys_cli.")


def lookup(table: dict[str, str], name: str, *, what: str) -> str:
    """Return the import path of a component; nothing is imported.

    Args:
        table: Components of this package.
        name: One of them, an entry point of an installed package, or an import path that is trusted.
        what: Kind of the component: dataset, model, engine or tracker.

    Raises:
        ConfigError: The name is not known (the message has the nearest one and lists all), or the import path is not trusted.
    """
    if name in table:
        return table[name]
    if name in table.values() and ":" not in name:  # a package, which needs no name beside it
        return name
    if (path := plugins.resolve(name, what=what)) is not None:
        return path
    raise ConfigError(f"unknown {what} {name!r}{suggest(name, table)}", hint=f"known: {', '.join(sorted(table))}")
