"""A loader as `tf.data.Dataset`: the same rows in the same order, lists as ragged tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import MissingExtraError
from recsys_cli.features.schema import Column, Kind, Schema
from recsys_cli.loader.loader import Loader

if TYPE_CHECKING:
    import tensorflow as tf

_DEPTH = 2
"""Batches ahead in TensorFlow, besides those of the loader."""


def dataset_of(loader: Loader, schema: Schema, *, epochs: int = 1) -> tf.data.Dataset:
    """Return the batches of consecutive epochs of a loader; every iteration starts at epoch 0.

    An element is (features, label), or (features, label, weight) with sample weights. Features are a dict by column: ids
    as int32 and numbers as float32, shape (B,), lists as `tf.RaggedTensor`; the weights of a list are a column of their
    own. Several labels are a dict.

    Raises:
        MissingExtraError: TensorFlow is not installed.
    """
    tf = _tensorflow()

    def batches() -> Iterator[tuple[Any, ...]]:
        for epoch in range(epochs):
            loader.set_epoch(epoch)
            for batch in loader:
                yield tuple(tensor.numpy() for tensor in _tensors(batch, schema))

    def element(*tensors: Any) -> tuple[Any, ...]:
        left = iter(tensors)
        features: dict[str, Any] = {}
        for column in schema.features:
            features[column.name] = next(left)
            if column.ragged:
                lists = tf.RaggedTensor.from_row_splits(features[column.name], next(left), validate=False)
                features[column.name] = lists
                if column.weights is not None:
                    features[column.weights] = lists.with_values(next(left))
        labels = {column.name: next(left) for column in schema.labels}
        return features, labels if len(labels) > 1 else labels[schema.label.name], *left

    specs = tuple(tf.TensorSpec([None], dtype) for dtype in _dtypes(schema))
    data = tf.data.Dataset.from_generator(batches, output_signature=specs).map(element)
    return data.apply(tf.data.experimental.assert_cardinality(epochs * len(loader))).prefetch(_DEPTH)


def _tensors(batch: Batch, schema: Schema) -> Iterator[Tensor]:
    """Yield the tensors of a batch in the order of `_dtypes`."""
    for column in schema.features:
        feature = batch.features[column.name]
        yield from feature.tensors() if isinstance(feature, Ragged) else (feature,)
    yield from (batch.labels[column.name] for column in schema.labels)
    if batch.weight is not None:
        yield batch.weight


def _dtypes(schema: Schema) -> Iterator[str]:
    for column in schema.features:
        yield from _dtypes_of(column)
    yield from ["float32"] * (len(schema.labels) + (schema.weight is not None))


def _dtypes_of(column: Column) -> Iterator[str]:
    yield "int32" if column.kind is Kind.CATEGORICAL else "float32"
    if column.ragged:
        yield "int64"
        if column.weights is not None:
            yield "float32"


def _tensorflow() -> Any:
    try:
        import tensorflow
    except ImportError as error:
        raise MissingExtraError.for_extra("tensorflow", what="tf.data") from error
    return tensorflow
