"""The network of `mlp` in Keras, with the weights of the torch model copied."""

from __future__ import annotations

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
import torch
from torch import nn

import recsys_cli as recsys
from recsys_cli.config import TrainConfig
from recsys_cli.features.schema import Schema
from recsys_cli.models.ranking.layers import NumericColumns
from recsys_cli.models.ranking.networks import MLP
from recsys_cli.training.data import TrainingData
from recsys_cli.training.objective import Objective
from recsys_cli.training.trainer import Trainer

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
    def of(cls, model: MLP, schema: Schema) -> Twin:
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


def train_torch(model: MLP, data: recsys.PreparedData, config: TrainConfig) -> None:
    """Train a torch network with the trainer of `recsys train`, without a valid split."""
    loader = data.loader("train", batch_size=config.batch_size, seed=config.seed)
    for _ in Trainer(model, TrainingData(loader), config, objective=Objective(label=data.schema.label.name)).events():
        pass


def train_keras(twin: Twin, data: recsys.PreparedData, config: TrainConfig) -> None:
    """Train a twin on the same batches with Keras."""
    batches = data.tf_dataset("train", batch_size=config.batch_size, epochs=config.epochs, seed=config.seed)
    steps = len(batches) // config.epochs
    compiled(twin, config).fit(batches, epochs=config.epochs, steps_per_epoch=steps, shuffle=False, verbose=0)


def torch_scores(model: MLP, data: recsys.PreparedData, split: str) -> Scores:
    """Score a split by torch."""
    with torch.inference_mode():
        return np.concatenate([_numpy(model.eval().score(batch)) for batch in data.loader(split, batch_size=ROWS)])


def keras_scores(twin: Twin, data: recsys.PreparedData, split: str) -> Scores:
    """Score a split by Keras."""
    return np.asarray(twin.predict(data.tf_dataset(split, batch_size=ROWS), verbose=0))


def _numpy(values: torch.Tensor) -> Scores:
    return values.detach().numpy().copy()
