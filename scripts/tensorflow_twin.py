"""The Merlin notebook's network in Keras, on the data and the first weights of `mlp`: the same metrics, and raw ids to scores.

usage: tensorflow_twin.py CONFIG [OVERRIDE ...] [--workspace DIR] [--seeds 5] [--export FOLDER]

CONFIG has the model `mlp`, dense gradients and no dropout. For each seed both networks start with the weights of torch and
train on the same batches; the noise is the deviation of torch's metrics over the seeds. Then a run of `recsys train` goes
into a SavedModel, whose scores of raw rows are compared with those of the run.
Needs the extra `tensorflow`. The result goes to scripts/results/tensorflow_twin.json.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
import torch
from torch import nn

import recsys_cli as recsys
from recsys_cli.config import TrainConfig
from recsys_cli.features.schema import Schema
from recsys_cli.metrics import POINTWISE
from recsys_cli.models import build
from recsys_cli.models.mlp.model import Model
from recsys_cli.models.ranking.numbers import NumericColumns
from recsys_cli.serving.export.formats import ExportedRows
from recsys_cli.stages.verify import sample_rows
from recsys_cli.training.data import TrainingData
from recsys_cli.training.objective import Objective
from recsys_cli.training.trainer import Trainer
from recsys_cli.workspace import Bundle

METRICS = ("auc", "log_loss")
ROWS = 10_000
"""Rows of a batch of scores."""
_EPSILON = 3e-9
"""Of Adam. Keras adds it before the bias correction: about 1e-8, as in torch, after a hundred steps."""

Scores = npt.NDArray[np.float32]


class Twin(keras.Model):
    """Embeddings, summed where a row has several, concatenated with numbers, through dense layers to one logit.

    Args:
        tables: Rows and width of each embedding table, by column, in order.
        numeric: Numeric columns, in order.
        hidden_dims: Widths of the dense layers, each followed by ReLU and BatchNorm.
        weights_of: Column of the weights of a list, by column.
    """

    def __init__(
        self,
        tables: dict[str, tuple[int, int]],
        numeric: NumericColumns,
        hidden_dims: tuple[int, ...],
        weights_of: dict[str, str],
    ) -> None:
        super().__init__()
        self.numeric, self.weights_of = dict(numeric.widths), weights_of
        self.tables = {
            name: self.add_weight(shape=size, initializer="random_normal", name=f"table_{number}")
            for number, (name, size) in enumerate(tables.items())
        }
        width = sum(dim for _, dim in tables.values()) + len(numeric)
        self.hidden = []
        for dim in hidden_dims:
            dense, norm = keras.layers.Dense(dim), keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
            dense.build((None, width))
            norm.build((None, dim))
            self.hidden.append((dense, norm))
            width = dim
        self.last = keras.layers.Dense(1)
        self.last.build((None, width))
        self.built = True

    @classmethod
    def of(cls, model: Model, schema: Schema) -> Twin:
        """Return a copy of a torch network: its shapes and weights."""
        tables = {name: tuple(model.embeddings.table(name).shape) for name in model.embeddings.names}
        weights_of = {column.name: column.weights for column in schema.features if column.weights}
        linears = [model.tower.first.linear, *(layer for layer in model.tower.rest if isinstance(layer, nn.Linear))]
        norms = [layer for layer in model.tower.rest if isinstance(layer, nn.BatchNorm1d)]
        twin = cls(tables, model.numeric, tuple(norm.num_features for norm in norms), weights_of)
        for name, table in twin.tables.items():
            table.assign(_numpy(model.embeddings.table(name)))
        for linear, dense in zip(linears, [*(dense for dense, _ in twin.hidden), twin.last], strict=True):
            dense.set_weights([_numpy(linear.weight).T, _numpy(linear.bias)])
        for norm, (_, layer) in zip(norms, twin.hidden, strict=True):
            layer.set_weights([_numpy(part) for part in (norm.weight, norm.bias, norm.running_mean, norm.running_var)])
        return twin

    def call(self, features: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Return one logit a row; shape (B,)."""
        values = [self._embedded(name, table, features) for name, table in self.tables.items()]
        for name, width in self.numeric.items():
            column = features[name]
            is_vector = isinstance(column, tf.RaggedTensor)
            values.append(column.to_tensor(shape=(None, width)) if is_vector else column[:, None])
        output = tf.concat(values, 1)
        for dense, norm in self.hidden:
            output = norm(tf.nn.relu(dense(output)), training=training)
        return self.last(output)[:, 0]

    def _embedded(self, name: str, table: keras.Variable, features: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return an embedding a row.

        Each distinct id is looked up once: Keras's Adam squares the gradients of a repeated id before their sum.
        """
        ids = features[name]
        is_list = isinstance(ids, tf.RaggedTensor)
        used, places = tf.unique(ids.values if is_list else ids)
        rows = tf.gather(tf.gather(table.value, used), places)
        if name in self.weights_of:
            rows *= features[self.weights_of[name]].values[:, None]
        return tf.reduce_sum(ids.with_values(rows), 1) if is_list else rows


def compiled(twin: Twin, config: TrainConfig) -> Twin:
    """Prepare a network for `fit`, with the loss and the dense Adam of `recsys train`."""
    optimizer = keras.optimizers.Adam(config.learning_rate, epsilon=_EPSILON)
    twin.compile(optimizer, loss=keras.losses.BinaryCrossentropy(from_logits=True))
    return twin


def train_torch(model: Model, data: recsys.PreparedData, config: TrainConfig) -> None:
    """Train a torch network with the trainer of `recsys train`, without a valid split."""
    loader = data.loader("train", batch_size=config.batch_size, seed=config.seed)
    for _ in Trainer(model, TrainingData(loader), config, objective=Objective(label=data.schema.label.name)).events():
        pass


def train_keras(twin: Twin, data: recsys.PreparedData, config: TrainConfig) -> None:
    """Train a twin on the same batches with Keras."""
    batches = data.tf_dataset("train", batch_size=config.batch_size, epochs=config.epochs, seed=config.seed)
    steps = len(batches) // config.epochs
    compiled(twin, config).fit(batches, epochs=config.epochs, steps_per_epoch=steps, shuffle=False, verbose=0)


def torch_scores(model: Model, data: recsys.PreparedData, split: str) -> Scores:
    """Score a split by torch."""
    with torch.inference_mode():
        return np.concatenate([_numpy(model.eval().score(batch)) for batch in data.loader(split, batch_size=ROWS)])


def keras_scores(twin: Twin, data: recsys.PreparedData, split: str) -> Scores:
    """Score a split by Keras."""
    return np.asarray(twin.predict(data.tf_dataset(split, batch_size=ROWS), verbose=0))


def metrics(scores: Scores, data: recsys.PreparedData, split: str) -> dict[str, float]:
    """Return the metrics of the scores of a split."""
    name = data.schema.label.name
    labels = np.concatenate([_numpy(batch.labels[name]) for batch in data.loader(split, batch_size=ROWS)])
    return {metric: POINTWISE[metric].of_rows(labels, scores) for metric in METRICS}


def trained_pair(data: recsys.PreparedData, config: recsys.RunConfig, seed: int) -> dict[str, Any]:
    """Train both networks from the same weights; return the first difference and the metrics of each."""
    options = config.train.model_copy(update={"seed": seed, "device": "cpu", "precision": "fp32"})
    torch.manual_seed(seed)
    model = build(config.model.name, config.model.options, data.schema)
    twin = Twin.of(model, data.schema)
    splits = [split for split in ("valid", "test") if data.rows(split)]
    first = np.abs(torch_scores(model, data, splits[0]) - keras_scores(twin, data, splits[0])).max()
    train_torch(model.train(), data, options)
    train_keras(twin, data, options)
    found = {
        split: {
            "torch": metrics(torch_scores(model, data, split), data, split),
            "keras": metrics(keras_scores(twin, data, split), data, split),
        }
        for split in splits
    }
    return {"first_difference": float(first), "splits": found}


def agreement(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean metrics, the paired differences, and the deviation of torch over the seeds."""
    from measure import spread

    found: dict[str, Any] = {"largest_difference_of_first_scores": max(pair["first_difference"] for pair in pairs)}
    for split in pairs[0]["splits"]:
        for metric in METRICS:
            ours, twins = ([pair["splits"][split][side][metric] for pair in pairs] for side in ("torch", "keras"))
            differences = [twin - own for own, twin in zip(ours, twins, strict=True)]
            found[f"{split} {metric}"] = {
                "torch": round(statistics.mean(ours), 5),
                "keras": round(statistics.mean(twins), 5),
                "keras - torch (min / median / max)": spread(differences, 5),
                "keras - torch (mean)": round(statistics.mean(differences), 5),
                "its_standard_error": round(statistics.stdev(differences) / len(pairs) ** 0.5, 5),
                "deviation_of_torch_over_seeds": round(statistics.stdev(ours), 5),
            }
    return found


def exported(data: recsys.PreparedData, run: recsys.TrainedRun, folder: Path) -> dict[str, Any]:
    """Write the run's network as a SavedModel, and compare scores of raw rows with those of the run."""
    data.tf_export(Twin.of(run.model(), data.schema), folder)
    sample = sample_rows(run, recsys.Workspace(run.folder.parents[1]))
    assert sample is not None
    saved = tf.saved_model.load(str(folder))
    exported_rows = ExportedRows(Bundle(folder), lambda rows: saved.score(dict(rows))["score"].numpy())
    scores = exported_rows.score({name: sample.column(name).to_pylist() for name in sample.column_names})
    expected = run.score(sample)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    largest = float(np.abs(scores - expected).max())
    return {"raw_rows": sample.num_rows, "largest_difference_of_scores": largest, "megabytes": round(size / 1e6, 1)}


def _numpy(values: torch.Tensor) -> Scores:
    return values.detach().numpy().copy()


def main() -> None:
    """Train pairs, export a run, and keep the figures."""
    from measure import keep, machine  # beside this script; tests import only the network

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--workspace", type=Path, default=Path("workspace"))
    parser.add_argument("--seeds", type=int, default=5, help="two or more")
    parser.add_argument("--export", type=Path, help="new folder of the SavedModel; a temporary one without it")
    given = parser.parse_args()
    workspace = recsys.Workspace(str(given.workspace))
    config = recsys.load_config(given.config, given.overrides)
    data = recsys.etl(config, workspace)
    pairs = [trained_pair(data, config, seed) for seed in range(given.seeds)]
    run = recsys.train(config, workspace)
    with tempfile.TemporaryDirectory() as scratch:
        saved = exported(data, run, given.export or Path(scratch) / "saved")
    keep("tensorflow_twin", {
        "config": given.config.name,
        "overrides": given.overrides,
        "seeds": given.seeds,
        "rows": {split: data.rows(split) for split in ("train", "valid", "test")},
        "agreement": agreement(pairs),
        "saved_model": saved,
        "machine": machine("tensorflow-cpu", "keras", "torch", "numpy"),
    })  # fmt: skip


if __name__ == "__main__":
    main()
