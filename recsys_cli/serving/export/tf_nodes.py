"""The nodes of a row graph as TensorFlow ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from onnx import NodeProto, helper, numpy_helper

from recsys_cli.features.hashing import GOLDEN, TEXT_KEY
from recsys_cli.features.string_keys import WORD_BYTES
from recsys_cli.serving.export.graph import TYPES, Graph

_DTYPES = {number: tf.as_dtype(name) for name, number in TYPES.items()}


class RowNodes(tf.Module):
    """The functions of a row graph, with its dictionaries as lookup tables.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph
        self._tables = {
            node.output[0]: _lookup_table(_attributes(node)) for node in graph.nodes if node.op_type == "LabelEncoder"
        }

    def __call__(self, rows: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return all tensors of the graph by name.

        Args:
            rows: Its inputs by name.
        """
        tensors = {one.name: tf.constant(numpy_helper.to_array(one)) for one in self._graph.constants}
        tensors |= {name: rows[name] for name in self._graph.inputs}
        for node in self._graph.nodes:
            inputs, output = [tensors[name] for name in node.input], node.output[0]
            if node.op_type == "LabelEncoder":
                tensors[output] = self._tables[output].lookup(inputs[0])
            else:
                tensors[output] = _OPS[node.op_type](*inputs, **_attributes(node))
        return tensors


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _lookup_table(attributes: Mapping[str, Any]) -> tf.lookup.StaticHashTable:
    is_text = "keys_strings" in attributes
    keys = tf.constant(attributes["keys_strings" if is_text else "keys_int64s"], tf.string if is_text else tf.int64)
    values = tf.constant(attributes["values_int64s"], tf.int64)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), attributes["default_int64"])


def _divide(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    return tf.truncatediv(one, other) if one.dtype.is_integer else tf.divide(one, other)


def _hash(data: tf.Tensor) -> tf.Tensor:
    """Return the hashes of `hashing.hash_values`, uint64."""
    if data.dtype == tf.string:
        return _hash_texts(data)
    bits = data + 0.0 if data.dtype.is_floating else data  # -0.0 + 0.0 is 0.0
    return _combine(tf.bitcast(bits, tf.uint64), tf.constant(0, tf.uint64))


def _hash_texts(texts: tf.Tensor) -> tf.Tensor:
    sizes = tf.strings.length(texts)
    num_words = tf.maximum(
        1, (tf.reduce_max(tf.concat([tf.reshape(sizes, [-1]), [0]], 0)) + WORD_BYTES - 1) // WORD_BYTES
    )
    words = tf.bitcast(tf.io.decode_raw(texts, tf.int64, fixed_length=num_words * WORD_BYTES), tf.uint64)
    start = _combine(tf.cast(sizes, tf.uint64), tf.constant(TEXT_KEY, tf.uint64))

    def step(number: tf.Tensor, hashes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        following = _combine(tf.gather(words, number, axis=-1), hashes)
        return number + 1, tf.where(sizes > WORD_BYTES * number, following, hashes)

    return tf.while_loop(lambda number, _: number < num_words, step, [tf.constant(0), start])[1]


def _combine(counters: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Hash counters with keys as `hashing.hash_counters` does."""
    values = counters * tf.constant(GOLDEN, tf.uint64) + key
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        shifted = tf.bitwise.right_shift(values, tf.constant(shift, tf.uint64))
        values = tf.bitwise.bitwise_xor(values, shifted) * tf.constant(factor, tf.uint64)
    return values


def _bucket(hashes: tf.Tensor, *, num_buckets: int, first: int) -> tf.Tensor:
    half = tf.constant(32, tf.uint64)
    scaled = tf.bitwise.right_shift(hashes, half) * tf.constant(num_buckets, tf.uint64)
    return tf.cast(tf.bitwise.right_shift(scaled, half), tf.int64) + first


_OPS: dict[str, Callable[..., tf.Tensor]] = {
    "Add": tf.add,
    "And": tf.logical_and,
    "Bucket": _bucket,
    "Cast": lambda data, to: tf.cast(data, _DTYPES[to]),
    "Combine": _combine,
    "Div": _divide,
    "Equal": tf.equal,
    "Floor": tf.floor,
    "Gather": tf.gather,
    "Greater": tf.greater,
    "GreaterOrEqual": tf.greater_equal,
    "Hash": _hash,
    "Identity": tf.identity,
    "IsNaN": tf.math.is_nan,
    "Less": tf.less,
    "LessOrEqual": tf.less_equal,
    "Log": tf.math.log,
    "Max": tf.maximum,
    "Mod": tf.math.floormod,
    "Mul": tf.multiply,
    "Neg": tf.negative,
    "Not": tf.logical_not,
    "Or": tf.logical_or,
    "ReduceSum": lambda data, axes, keepdims: tf.reduce_sum(data, axes, keepdims=bool(keepdims)),
    "Sub": tf.subtract,
    "Unsqueeze": tf.expand_dims,
    "Where": tf.where,
}
"""By type of node."""
