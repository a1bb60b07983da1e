"""TensorFlow models as SavedModel of encoded ids, with the dimension tables inside the graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
import torch

from recsys_cli.batch import Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import PADDING, UNSEEN, Column, Kind, Schema
from recsys_cli.loader import DimensionTables
from recsys_cli.serving.bundle_writer import copy_data
from recsys_cli.serving.export.program import Input, inputs_of, signature
from recsys_cli.workspace import PreparedData, write_json

_OUTPUT = "score"
_CALL_FIRST = "train the model, or call it on the features of a batch and load its weights, before the export"


class EncodedFeatures(tf.Module):
    """Encoded inputs to the features of `loader.tf_data`, with the dimension tables inside a graph.

    Attributes:
        inputs: Encoded inputs, as in the programs of ONNX and torch.export: ids or table rows, numbers, padded lists.
    """

    def __init__(self, data: PreparedData) -> None:
        super().__init__()
        schema, tables = data.schema, DimensionTables(data)
        keys = [column for column in schema.categorical if tables.num_rows(column.name)]
        self._joins = [_Join(key.name, tables, schema) for key in keys]
        joined = {name for join in self._joins for name in join.names}
        self._rest = tuple(column for column in schema.features if column.name not in joined)
        self.inputs = inputs_of(keys, [join.num_rows for join in self._joins], self._rest)

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Return the inputs as specs, by name."""
        return {one.name: tf.TensorSpec([None] * len(one.shape), one.dtype, _identifier(one)) for one in self.inputs}

    def __call__(self, tensors: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return the features: ids as int32, numbers as float32, lists as `tf.RaggedTensor`."""
        features: dict[str, tf.Tensor] = {}
        for join in self._joins:
            features |= join(tensors[join.key])
        for column in self._rest:
            features |= _given(column, tensors)
        return features


class _Join(tf.Module):
    """Dimension table of a key: its features and encoded ids by table row."""

    def __init__(self, key: str, tables: DimensionTables, schema: Schema) -> None:
        super().__init__()
        self.key, self.num_rows = key, tables.num_rows(key)
        rows = torch.arange(self.num_rows)
        self._columns = {key: _constant(tables.ids(key, rows).int())}
        self._splits: dict[str, tf.Variable] = {}
        for name, feature in tables.features({key: rows}).items():
            self._columns[name] = _constant(feature.values if isinstance(feature, Ragged) else feature)
            if isinstance(feature, Ragged):
                self._splits[name] = _constant(feature.offsets)
                if feature.weights is not None:
                    weights = str(schema[name].weights)
                    self._columns[weights], self._splits[weights] = _constant(feature.weights), self._splits[name]
        self.names = tuple(self._columns)

    def __call__(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = _in_range(rows, self.num_rows)
        tables = dict(self._columns)
        for name, splits in self._splits.items():
            tables[name] = tf.RaggedTensor.from_row_splits(tables[name], splits, validate=False)
        return {name: tf.gather(table, rows) for name, table in tables.items()}


def write_saved_model(data: PreparedData, model: Callable[..., Any], folder: Path) -> None:
    """Write a SavedModel from encoded inputs to the output of a model, signature.json, and the plan that encodes raw rows.

    Raises:
        ConfigError: The object is no model, has untrained weights, fails on the features, or gives no score per row.
    """
    _check_model(model)
    rows, before = EncodedFeatures(data), _num_weights(model)

    @tf.function(input_signature=[rows.signature()])
    def score(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {_OUTPUT: model(rows(inputs), training=False)}

    try:
        output = score.get_concrete_function().structured_outputs.get(_OUTPUT)
    except (TypeError, ValueError, LookupError, AttributeError, tf.errors.OpError) as error:
        raise ConfigError(
            f"the model fails on the features of tf_dataset: {type(error).__name__}: {error}",
            hint="it has to take model(features, training=False), with the dict of features of a batch",
        ) from error
    if _num_weights(model) != before:
        raise ConfigError("the export itself made weights of the model, so they are random", hint=_CALL_FIRST)
    shape = _shape_of_scores(output)
    served = tf.Module()
    served.rows, served.model, served.score = rows, model, score
    tf.saved_model.save(served, str(folder), signatures=score)
    entry = signature(rows.inputs, output=_OUTPUT, width=shape[1] if shape.rank > 1 else None, program=".")
    write_json(folder / "signature.json", {"format": "SavedModel", "programs": [entry]})
    copy_data(data, PreparedData(folder / "data"), tables=False)


def _check_model(model: Any) -> None:
    if not callable(model) or not isinstance(model, tf.__internal__.tracking.Trackable):
        raise ConfigError(
            f"model has to be a Keras model or a tf.Module with __call__, not {type(model).__name__}: {model!r:.60}"
        )
    if not getattr(model, "built", True):
        raise ConfigError("the model has no weights yet, so an export would have random ones", hint=_CALL_FIRST)


def _num_weights(model: Any) -> int:
    return len(getattr(model, "variables", ()))


def _shape_of_scores(output: Any) -> tf.TensorShape:
    """Return the shape of the output: (rows,) or (rows, width).

    Raises:
        ConfigError: It is another one, or the number of rows is fixed.
    """
    shape = output.shape if isinstance(output, tf.Tensor) else tf.TensorShape(None)
    if shape.rank not in {1, 2} or shape[0] is not None:
        what = f"the shape {shape}" if isinstance(output, tf.Tensor) else "no single tensor"
        raise ConfigError(
            f"the output of the model has {what}, not one score per row: (None,), or (None, width) for vectors",
            hint="return a tensor whose first dimension is that of the features",
        )
    return shape


def _constant(values: Any) -> tf.Variable:
    return tf.Variable(values.numpy(), trainable=False)


def _identifier(one: Input) -> str:
    """Return the name of an input in the signature: characters outside of identifiers are underscores."""
    return re.sub(r"\W", "_", one.name, flags=re.ASCII)


def _in_range(ids: tf.Tensor, num_rows: int) -> tf.Tensor:
    return tf.where((ids < 0) | (ids >= num_rows), tf.constant(UNSEEN, ids.dtype), ids)


def _given(column: Column, tensors: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return a column of the interactions, and the weights of a list."""
    values = tensors[column.name]
    if column.kind is Kind.NUMERIC:
        return {column.name: tf.RaggedTensor.from_tensor(values) if column.ragged else values}
    ids = tf.cast(_in_range(values, int(column.cardinality or 0)), tf.int32)
    if not column.ragged:
        return {column.name: ids}
    lists = tf.ragged.boolean_mask(ids, ids != PADDING)
    if column.weights is None:
        return {column.name: lists}
    weights = tf.boolean_mask(tensors[column.weights], ids != PADDING)
    return {column.name: lists, column.weights: lists.with_values(weights)}
