"""Rows per second of `tf.data` from prepared data, and the share of time that a Keras network waits for it.

usage: bench_tensorflow.py PREPARED [--rounds 3] [--seconds 15]

PREPARED is a folder that `recsys etl` wrote (workspace/data/<key>), with single ids and a table with lists, as of MovieLens.
Each program is a process of its own, in turn: our loader, its `tf.data.Dataset`, a dataset of plain TensorFlow (from slices,
a shuffle buffer, the lists of the table by tf.gather), and two networks in Keras on ours: the notebook's (512, 512 and 16 dims,
dense Adam), and one with 16 dims and SGD in the tables, the fastest step that is plausible. Needs the extra `tensorflow`.
The result goes to scripts/results/tensorflow.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import keep, machine, run, spread

if TYPE_CHECKING:
    import tensorflow as tf

    from recsys_cli import PreparedData

BATCH = 32_768
PROGRAMS = ("loader", "tf.data", "plain tf.data", "notebook's network", "16 dims", "16 dims, batch 1024")
BUFFER = 1_000_000
"""Rows in the shuffle buffer of plain TensorFlow."""


def loader(data: PreparedData, seconds: float) -> dict[str, float]:
    """Time the loader by itself."""
    epochs = repeat(data.loader("train", batch_size=BATCH))
    batches = ((batch, batch.num_rows) for epoch in epochs for batch in epoch)
    return consume(batches, lambda _: None, seconds)


def ours(data: PreparedData, seconds: float) -> dict[str, float]:
    """Time the dataset of the loader."""
    return consume(_sized(data.tf_dataset("train", batch_size=BATCH, epochs=100)), lambda _: None, seconds)


def plain(data: PreparedData, seconds: float) -> dict[str, float]:
    """Time a dataset that a user would write without a loader."""
    import pyarrow.parquet as pq
    import tensorflow as tf

    names = [column.name for column in (*data.schema.features, data.schema.label) if column.table is None]
    content = pq.read_table([str(path) for path in data.shards("train")], columns=names)
    columns = {name: content[name].to_numpy() for name in names}
    lists = {}
    for key in data.schema.tables:
        table = pq.read_table(data.table(key))
        for column in data.schema.in_table(key):
            lists[column.name] = (key, tf.ragged.constant(table[column.name].to_pylist(), tf.int32))

    def joined(rows: dict[str, tf.Tensor]) -> dict[str, Any]:
        return {**rows, **{name: tf.gather(values, rows[key]) for name, (key, values) in lists.items()}}

    batches = tf.data.Dataset.from_tensor_slices(columns).shuffle(BUFFER).batch(BATCH)
    batches = batches.map(joined, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    label = data.schema.label.name
    return consume(((rows, int(rows[label].shape[0])) for rows in batches), lambda _: None, seconds)


def network(data: PreparedData, seconds: float, *, dim: int | None, batch_size: int = BATCH) -> dict[str, float]:
    """Train the twin of `mlp`; dense Adam for wide tables, and SGD of the rows of a batch for narrow ones."""
    import keras
    import tensorflow as tf
    import torch
    from tensorflow_twin import Twin

    from recsys_cli import models

    torch.manual_seed(0)
    options = {"embedding_dim": dim, "dropout": 0.0, "embedding_dropout": 0.0}
    twin = Twin.of(models.build("mlp", options, data.schema), data.schema)
    optimizer = keras.optimizers.Adam(0.01) if dim is None else keras.optimizers.SGD(0.01)
    optimizer.build(twin.trainable_variables)
    loss_of = keras.losses.BinaryCrossentropy(from_logits=True)
    batches = data.tf_dataset("train", batch_size=batch_size, epochs=100)

    @tf.function(input_signature=batches.element_spec)
    def step(features: dict[str, Any], label: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(label, twin(features, training=True))
        variables = twin.trainable_variables
        optimizer.apply(tape.gradient(loss, [variable.value for variable in variables]), variables)
        return loss

    return consume(_sized(batches), lambda batch: step(*batch).numpy(), seconds)


def consume(batches: Iterator[tuple[Any, int]], step: Callable[[Any], object], seconds: float) -> dict[str, float]:
    """Run steps for some seconds; the first three, with tracing and the start of the pipeline, are not counted."""
    started = waited = rows = 0.0
    number = 0
    while True:
        before = time.perf_counter()
        if number == 3:
            started, waited, rows = before, 0.0, 0.0
        elif number > 4 and before - started > seconds:
            break
        batch, size = next(batches)
        waited += time.perf_counter() - before
        step(batch)
        rows += size
        number += 1
    total = before - started
    return {"rows_per_second": rows / total, "waiting": waited / total, "steps": number - 3}


def _sized(dataset: tf.data.Dataset) -> Iterator[tuple[Any, int]]:
    for batch in dataset:
        yield batch, int(batch[1].shape[0])


def work(name: str, folder: Path, seconds: float) -> dict[str, float]:
    """Run one program in this process."""
    from recsys_cli import PreparedData

    data = PreparedData(folder)
    programs: dict[str, Callable[[], dict[str, float]]] = {
        "loader": lambda: loader(data, seconds),
        "tf.data": lambda: ours(data, seconds),
        "plain tf.data": lambda: plain(data, seconds),
        "notebook's network": lambda: network(data, seconds, dim=None),
        "16 dims": lambda: network(data, seconds, dim=16),
        "16 dims, batch 1024": lambda: network(data, seconds, dim=16, batch_size=1_024),
    }
    return programs[name]()


def summary(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Return the figures of each program, and the rates over those of tf.data in the same round."""
    found: dict[str, Any] = {}
    for name in rounds[0]:
        every = [one[name] for one in rounds]
        found[name] = {
            "rows_per_second (median)": round(statistics.median(one["rows_per_second"] for one in every)),
            "share_of_time_waiting (min / median / max)": spread([one["waiting"] for one in every], 4),
            "steps": [int(one["steps"]) for one in every],
            "peak_gb": round(max(one["peak_gb"] for one in every), 2),
        }
        if name != "tf.data":
            ratios = [one["tf.data"]["rows_per_second"] / one[name]["rows_per_second"] for one in rounds]
            found[name]["tf.data is times as fast (min / median / max)"] = spread(ratios)
    return found


def main() -> None:
    """Run all programs in turn and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--worker", choices=PROGRAMS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(work(given.worker, given.prepared, given.seconds)))
        return
    where = machine("tensorflow-cpu", "keras", "torch", "numpy")
    rounds: list[dict[str, dict[str, float]]] = []
    for _ in range(given.rounds):
        one = {}
        for name in PROGRAMS:
            done = run(
                [sys.executable, __file__, str(given.prepared), "--seconds", str(given.seconds), "--worker", name]
            )
            one[name] = {**json.loads(done.output.splitlines()[-1]), "peak_gb": done.peak_gb}
            print(f"{name}: {one[name]}", flush=True)
        rounds.append(one)
    keep("tensorflow", {"batch_size": BATCH, "seconds": given.seconds, "programs": summary(rounds), "machine": where})


if __name__ == "__main__":
    main()
