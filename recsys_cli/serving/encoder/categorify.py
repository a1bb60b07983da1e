"""Categorify on NumPy, by the index of each vocabulary."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from recsys_cli.ops import Categorify
from recsys_cli.serving.encoder.ids import encoder
from recsys_cli.serving.encoder.values import Apply, Types, mapped, retype
from recsys_cli.serving.encoder.vocabulary import VocabularyIndex


def compiled(
    op: Categorify, state: Mapping[str, pa.Table], types: Types, indexes: Mapping[str, VocabularyIndex] | None = None
) -> Apply:
    """Replace values by ids.

    Args:
        op: The op.
        state: The vocabularies.
        types: Types of the columns.
        indexes: Indexes of vocabularies by name, such as memory-mapped ones; others are built.
    """
    built: dict[str, VocabularyIndex] = dict(indexes or {})
    functions = {}
    for name in op.learns:
        if name not in types:  # one of several columns with one vocabulary, and not needed
            continue
        vocabulary = op.vocabulary_of(name)
        if vocabulary not in built:
            built[vocabulary] = VocabularyIndex.build(state[vocabulary].column("value"))
        functions[name] = encoder(built[vocabulary], op.num_buckets)
        retype(types, name, pa.int32())
    return mapped(functions)
