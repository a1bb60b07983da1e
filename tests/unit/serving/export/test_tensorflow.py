"""TensorFlow on prepared data: the loader's batches as tf.data, the network of `mlp` in Keras, and raw rows to its scores."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recsys_cli as recsys
from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.errors import ConfigError, MissingExtraError
from recsys_cli.serving.export.program import encoded_sample
from recsys_cli.serving.recommender import Recommender
from recsys_cli.serving.served import ServedModel
from tests.unit.serving.export.conftest import rows as interactions

MakeRun = Callable[[str], recsys.TrainedRun]
MakeServed = Callable[[str], ServedModel]


@pytest.fixture(scope="module")
def tf() -> Any:
    """The module `tensorflow`; its own imports warn."""
    return pytest.importorskip("tensorflow", reason="the extra tensorflow is not installed")


@pytest.fixture
def data(runs: MakeRun, export_workspace: recsys.Workspace) -> recsys.PreparedData:
    return recsys.PreparedData(export_workspace.data_of(runs("mlp")).folder)


@pytest.fixture
def twin(tf: Any, runs: MakeRun, data: recsys.PreparedData) -> Any:
    from tests.tensorflow_twin import Twin

    return Twin.of(runs("mlp").model(), data.schema)


def by_column(batch: Batch, weights_of: dict[str, str]) -> Iterator[tuple[str, np.ndarray, list[int] | None]]:
    """Yield name, values and row splits of the columns of a batch, weights of lists included."""
    for name, feature in {**batch.features, **batch.labels}.items():
        if not isinstance(feature, Ragged):
            yield name, feature.numpy(), None
            continue
        splits = feature.offsets.tolist()
        yield name, feature.values.numpy(), splits
        if feature.weights is not None:
            yield weights_of[name], feature.weights.numpy(), splits


def assert_same(found: dict[str, Any], batch: Batch, data: recsys.PreparedData) -> None:
    weights_of = {column.name: column.weights for column in data.schema.features if column.weights}
    expected = list(by_column(batch, weights_of))
    assert set(found) == {name for name, _, _ in expected}
    for name, values, splits in expected:
        tensor = found[name]
        if splits is not None:
            assert tensor.row_splits.numpy().tolist() == splits, name
            tensor = tensor.values
        assert tensor.dtype.name == values.dtype.name, name
        np.testing.assert_array_equal(tensor.numpy(), values, err_msg=name)


def test_batches_are_those_of_the_loader(tf: Any, data: recsys.PreparedData) -> None:
    dataset, loader = data.tf_dataset(batch_size=100, epochs=2, seed=7), data.loader(batch_size=100, seed=7)
    batches = []
    for epoch in range(2):
        loader.set_epoch(epoch)
        batches += list(loader)

    assert len(dataset) == len(batches) == 2 * len(loader)
    for _ in range(2):  # a further iteration starts again
        for (features, label), batch in zip(dataset, batches, strict=True):
            assert_same({**features, data.schema.label.name: label}, batch, data)


def test_twin_learns_as_the_torch_network(tf: Any, data: recsys.PreparedData) -> None:
    from recsys_cli.config import TrainConfig
    from recsys_cli.models import build
    from tests.tensorflow_twin import Twin, compiled, keras_scores, torch_scores

    torch.manual_seed(0)
    options = {"embedding_dim": 8, "hidden_dims": [16, 8], "dropout": 0.0, "embedding_dropout": 0.0}
    model, rate = build("mlp", options, data.schema), 0.01
    twin = Twin.of(model, data.schema)
    np.testing.assert_allclose(keras_scores(twin, data, "test"), torch_scores(model, data, "test"), atol=1e-5)

    before = {name: table.numpy() for name, table in twin.tables.items()}
    loss = model.train().loss(next(iter(data.loader(batch_size=64))))
    loss.backward()
    learned = compiled(twin, TrainConfig(learning_rate=rate)).fit(
        data.tf_dataset(batch_size=64).take(1), shuffle=False, verbose=0
    )

    assert learned.history["loss"][0] == pytest.approx(loss.item(), rel=1e-5)
    for name, table in twin.tables.items():  # the first step of Adam has the size of the rate
        gradient = model.embeddings.table(name).grad.numpy()
        step = np.where(np.abs(gradient) > 1e-4, -rate * np.sign(gradient), 0.0)
        is_clear = (np.abs(gradient) > 1e-4) | (gradient == 0)
        np.testing.assert_allclose((table.numpy() - before[name])[is_clear], step[is_clear], atol=1e-4, err_msg=name)


def test_saved_model_scores_encoded_and_raw_rows(
    tf: Any, twin: Any, served: MakeServed, data: recsys.PreparedData, tmp_path: Path
) -> None:
    from recsys_cli.serving.export.formats import ExportedRows
    from recsys_cli.serving.export.program import feed
    from recsys_cli.serving.export.saved_model import EncodedFeatures
    from recsys_cli.workspace import Bundle

    loaded, folder = served("mlp"), data.tf_export(twin, tmp_path / "saved")
    batch, encoded = encoded_sample(loaded, 50), EncodedFeatures(data)
    features = encoded({n: tf.constant(v) for n, v in feed(encoded.inputs, batch.features).items()})
    joined = {name: _int32(one) for name, one in batch.features.items() if name in features}
    assert_same(features, Batch(joined, {}), data)
    saved = tf.saved_model.load(str(folder))
    with torch.inference_mode():
        expected = loaded.model.score(batch).numpy()
    inputs = {name: tf.constant(values) for name, values in feed(encoded.inputs, batch.features).items()}
    np.testing.assert_allclose(saved.score(inputs)["score"].numpy(), expected, atol=1e-5)

    rows = interactions().drop("rating", "timestamp").to_dict(as_series=False)
    exported = ExportedRows(Bundle(folder), lambda rows: saved.score(dict(rows))["score"].numpy())
    np.testing.assert_allclose(exported.score(rows), Recommender(loaded).score(rows), atol=1e-5)

    (program,) = json.loads((folder / "signature.json").read_text())["programs"]
    names = {one["name"] for one in program["inputs"]}
    assert set(saved.signatures["serving_default"].structured_input_signature[1]) == names
    with pytest.raises(ConfigError, match="not empty"):
        data.tf_export(twin, folder)


def test_what_is_no_trained_model_of_rows_is_refused(tf: Any, data: recsys.PreparedData, tmp_path: Path) -> None:
    class Lazy(tf.Module):
        """A model with weights from its first call on, and an output of its own."""

        def __init__(self, output: Any, *, is_lazy: bool = False) -> None:
            super().__init__()
            self.output, self.weight = output, None if is_lazy else tf.Variable(1.0)

        def __call__(self, features: Any, training: bool) -> Any:
            del training
            if self.weight is None:
                with tf.init_scope():
                    self.weight = tf.Variable(0.5)
            return self.output(next(iter(features.values())))

    unbuilt = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    scores = lambda ids: tf.cast(ids, tf.float32)  # noqa: E731
    for model, message in (
        (42, "has to be a Keras model or a tf.Module with __call__, not int: 42"),
        (lambda features, training: features, "not function"),
        (unbuilt, "no weights yet"),
        (Lazy(scores, is_lazy=True), "the export itself made weights"),
        (Lazy(lambda ids: tf.zeros((3, 2))), r"has the shape \(3, 2\), not one score per row"),
        (Lazy(lambda ids: tf.reduce_mean(scores(ids))), r"has the shape \(\)"),
        (Lazy(lambda ids: {"a": scores(ids)}), "no single tensor"),
        (Lazy(lambda ids: ids["nothing"]), "the model fails on the features"),
    ):
        with pytest.raises(ConfigError, match=message):
            data.tf_export(model, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_missing_extra_is_named(data: recsys.PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "recsys_cli.serving.export.saved_model"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorflow", None)

    for call in (data.tf_dataset, lambda: data.tf_export(None, tmp_path / "saved")):
        with pytest.raises(MissingExtraError, match="'tensorflow' extra") as error:
            call()
        assert error.value.hint == "pip install 'recsys-cli[tensorflow]'"


def _int32(feature: Feature) -> Feature:
    if isinstance(feature, Ragged):
        return Ragged(_int32(feature.values), feature.offsets, feature.weights)
    return feature if feature.is_floating_point() else feature.int()
