"""The registry: component names with import paths. Components are imported on use, so listing names is cheap."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple

from recsys_cli import plugins
from recsys_cli.errors import ConfigError

# Dataset name → "module:function"; the function takes (name, options) and returns a Source.
DATASETS: dict[str, str] = {
    **dict.fromkeys((
        "movielens-100k", "movielens-1m", "movielens-10m", "movielens-20m", "movielens-25m", "movielens-32m",
        "movielens-latest-small", "criteo-kaggle", "criteo-1tb", "avazu", "rees46", "yoochoose", "retailrocket",
        "mind-small", "mind-large", "amazon-reviews-2023", "amazon-5core-beauty", "amazon-5core-sports",
        "amazon-5core-toys", "lastfm-360k", "hetrec-lastfm", "gowalla", "ml1m-sasrec", "ml1m-ncf", "ml20m-liang",
        "gowalla-m1", "amazon-cds-m1", "amazon-electronics-m1", "movielens1m-m1", "book-crossing", "steam",
    ), "recsys_cli.data.published:source"),
    **dict.fromkeys((
        "synthetic", "synthetic-small", "synthetic-25m", "synthetic-clicks", "synthetic-sessions",
        "synthetic-impressions",
    ), "recsys_cli.data.synthetic:source"),
    "files": "recsys_cli.data.files:source",
}  # fmt: skip

# Engine name → "module:Class", an etl.engine.Engine, with their ranks for `auto`.
ENGINES: dict[str, str] = {
    "polars": "recsys_cli.etl.polars_engine:PolarsEngine",
    "nvtabular": "recsys_cli.etl.nvtabular_engine:NVTabularEngine",
}

DEFAULT_MODEL = "mlp"
"""Model of a config without `model.name`."""
AUTO = "auto"
"""`model.name` for the best of several models on valid, see `stages.auto`."""
AUTO_ADVICE = "a first choice: the best of several models on your data"

RANK, PREDICT = "rank the catalog", "predict labels of given rows"
"""Tasks: top-N recommendation from the catalog, and prediction of the label of a given (user, item) pair."""


class RegisteredModel(NamedTuple):
    """A model: import paths of its options (without torch) and of its class, its task and its use."""

    config: str
    model: str
    task: str
    use: str


def _own(model: str, task: str, use: str) -> RegisteredModel:
    """Return a model of this package: the options of `family.module:Name` are `configs.family:NameConfig`."""
    family, name = model.partition(".")[0], model.partition(":")[2]
    path = "recsys_cli.models"
    return RegisteredModel(f"{path}.configs.{family}:{name}Config", f"{path}.{model}", task, use)


# Best first within a task, by NDCG@10 of scripts/results/quality_topk.json (leave-last-out) and by AUC of quality_ranking.json and
# quality_history.json, all on MovieLens latest-small. The order depends on the data: `recsys bench` compares models on other data.
MODELS: dict[str, RegisteredModel] = {
    "sasrec": _own("sequence.networks:SASRec", RANK, "sequential recommendation on data with timestamps"),
    "gru4rec": _own("sequence.networks:GRU4Rec", RANK, "sequences and sessions, with a smaller model than sasrec"),
    "ease": _own(
        "matrix.ease:EASE",
        RANK,
        "a strong first choice: closed form, one hyperparameter; the largest weights alone for large catalogs",
    ),
    "hstu": _own("sequence.hstu:HSTU", RANK, "like sasrec, with the time between interactions in its attention"),
    "slim": _own("matrix.slim:SLIM", RANK, "like ease, with sparse, interpretable item weights"),
    "two-tower": _own("retrieval.two_tower:TwoTower", RANK, "cold-start users and items with features"),
    "ials": _own(
        "matrix.ials:IALS", RANK, "many users and items with implicit feedback; vectors for nearest-neighbor search"
    ),
    "bert4rec": _own("sequence.networks:BERT4Rec", RANK, "bidirectional sequence model; needs many epochs"),
    "item-knn": _own("matrix.item_knn:ItemKNN", RANK, "recommendations explained by similar items"),
    "graph-filter": _own("matrix.graph_filter:GraphFilter", RANK, "item graph without training: seconds, sparse data"),
    "mf": _own(
        "retrieval.factorization:MF", RANK, "user and item vectors from gradient training with a choice of losses"
    ),
    "lightgcn": _own("retrieval.factorization:LightGCN", RANK, "graph baseline for comparison with published results"),
    "two-stage": _own(
        "two_stage.model:TwoStage",
        RANK,
        "candidates of several models, ranked by features and re-ranked: a production pipeline in one model",
    ),
    "popularity": _own("matrix.popularity:Popularity", RANK, "baseline for all other models; cold-start users"),
    "lightgbm": _own(
        "ranking.lightgbm:LightGBM",
        PREDICT,
        "a strong first choice up to some million rows, with features or a graded second label",
    ),
    "din": _own(
        "ranking.attention:DIN",
        PREDICT,
        "attention to the part of the history that fits the item; data with timestamps",
    ),
    "bst": _own("ranking.attention:BST", PREDICT, "like din, with the order of the history"),
    "fm": _own("ranking.networks:FM", PREDICT, "small, fast model of pairwise feature interactions"),
    "dlrm": _own(
        "ranking.networks:DLRM", PREDICT, "many categorical and numeric features, as in ads; tables larger than a GPU"
    ),
    "wide-deep": _own(
        "ranking.networks:WideDeep", PREDICT, "memorization by cross features plus generalization by a deep part"
    ),
    "dcn-v2": _own("ranking.networks:DCNv2", PREDICT, "feature crosses on large data with many features"),
    "mlp": _own("ranking.networks:MLP", PREDICT, "network of the Merlin notebooks, for comparison"),
    "deepfm": _own("ranking.networks:DeepFM", PREDICT, "like fm, plus a deep part for larger data"),
    "logistic": _own("ranking.networks:Logistic", PREDICT, "linear baseline with interpretable weights"),
    "mmoe": _own("ranking.multitask:MMoE", PREDICT, "several labels that share experts"),
    "ple": _own("ranking.multitask:PLE", PREDICT, "several labels that may conflict, each with experts of its own"),
    "neumf": _own("ranking.networks:NeuMF", PREDICT, "user and item ids without further features"),
}

# Protocol name → file in `protocols`: a config with the published figures.
PROTOCOLS: dict[str, str] = {
    "s3-toys": "s3-toys.yaml",
    "s3-beauty": "s3-beauty.yaml",
    "s3-sports": "s3-sports.yaml",
    "ml1m-last-out": "ml1m-last-out.yaml",
    "ml1m-ncf": "ml1m-ncf.yaml",
    "gowalla-m1": "gowalla-m1.yaml",
    "amazon-cds-m1": "amazon-cds-m1.yaml",
    "movielens1m-m1": "movielens1m-m1.yaml",
    "amazon-electronics-m1": "amazon-electronics-m1.yaml",
    "ml20m-strong": "ml20m-strong.yaml",
}

# Tracker name → "module:Class", a training.trackers.Tracker.
TRACKERS: dict[str, str] = {
    "tensorboard": "recsys_cli.training.trackers.tensorboard:TensorBoard",
    "mlflow": "recsys_cli.training.trackers.mlflow:MLflow",
    "wandb": "recsys_cli.training.trackers.wandb:WandB",
}


def suggest(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean X?)" for the closest known name, or an empty string."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def load(path: str) -> Any:
    """Import the component "module:attribute", as returned by `lookup`.

    Raises:
        ConfigError: A plugin does not exist or cannot be imported.
    """
    module, _, attribute = path.partition(":")
    if not is_own(path):
        return plugins.load(path)
    return getattr(import_module(module), attribute)


def is_own(path: str) -> bool:
    """Whether an import path is one of this package."""
    return path.startswith("recsys_cli.")


def find_model(name: str) -> RegisteredModel:
    """Return a model of the registry, or of a plugin: a package with `config.Config` and `model.Model`; imports nothing.

    Raises:
        ConfigError: As in `lookup`, or the name is `auto`.
    """
    if name in MODELS:
        return MODELS[name]
    if name == AUTO:
        raise ConfigError(
            "model.name=auto stands for the best of several models on valid, and this needs one model",
            hint="recsys train shows the candidates; set model.name to one, such as model.name=ease",
        )
    package = lookup(dict.fromkeys(MODELS, ""), name, what="model")
    return RegisteredModel(f"{package}.config:Config", f"{package}.model:Model", "", "")


def lookup(table: dict[str, str], name: str, *, what: str) -> str:
    """Return the import path of a table's component, a plugin's entry point, or a trusted path, without importing it.

    Raises:
        ConfigError: The name is unknown (the message suggests the closest one and lists all), or the import path is not trusted.
    """
    if name in table:
        return table[name]
    if (path := plugins.resolve(name, what=what)) is not None:
        return path
    near = suggest(name, [*table, *plugins.declared(what).names])
    raise ConfigError(f"unknown {what} {name!r}{near}", hint=f"known: {', '.join(sorted(table))}")
