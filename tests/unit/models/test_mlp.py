from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import ConfigError, DataError, MissingArtifactError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.models import build
from recsys_cli.models.embedding import default_dim, dims_of
from recsys_cli.models.layers import BatchNorm
from recsys_cli.models.weights import load_weights


def categorical(name: str, rows: int, *, ragged: bool = False) -> Column:
    return Column(
        name=name, role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=rows, vocabulary=name, ragged=ragged
    )  # fmt: skip


def numeric(name: str, *, role: Role = Role.FEATURE, ragged: bool = False) -> Column:
    return Column(name=name, role=role, kind=Kind.NUMERIC, dtype="float32", ragged=ragged)


LABEL = numeric("label", role=Role.LABEL)
USER, GENRES, AGE = categorical("user", 50), categorical("genres", 9, ragged=True), numeric("age")
SCHEMA = Schema(columns=(USER, GENRES, AGE, LABEL))
WITHOUT_DROPOUT = {"dropout": 0.0, "embedding_dropout": 0.0}


def a_batch(num_rows: int = 40) -> Batch:
    draw = torch.Generator().manual_seed(0)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.randint(0, 3, (num_rows,), generator=draw).cumsum(0)])
    features = {
        "user": torch.randint(0, 50, (num_rows,), generator=draw),
        "genres": Ragged(torch.randint(0, 9, (int(offsets[-1]),), generator=draw), offsets),
        "age": torch.randn(num_rows, generator=draw),
    }
    return Batch(features, {"label": torch.randint(0, 2, (num_rows,), generator=draw).float()})


@pytest.mark.parametrize(("rows", "dim"), [(162_542, 512), (56_659, 512), (21, 16), (4, 16), (3_000, 142)])
def test_default_dim_is_the_rule_of_the_recipe(rows: int, dim: int) -> None:
    assert default_dim(rows) == dim


def test_dims_are_one_for_all_or_by_name() -> None:
    assert dims_of([USER, GENRES], 8) == {"user": 8, "genres": 8}
    assert dims_of([USER, GENRES], {"user": 8}) == {"user": 8, "genres": 16}
    assert dims_of([USER, GENRES], None) == {"user": 16, "genres": 16}


def test_dims_of_an_unknown_column_name_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no categorical column 'genre' \(did you mean genres\?\)"):
        build("mlp", {"embedding_dim": {"genre": 4}}, SCHEMA)


def test_score_is_the_network_of_the_notebook() -> None:
    """Written out with torch's own layers over the concatenation that our first layer avoids."""
    torch.manual_seed(0)
    model = build("mlp", {"embedding_dim": {"user": 6, "genres": 4}, "hidden_dims": [8, 5], **WITHOUT_DROPOUT}, SCHEMA)
    with torch.no_grad():
        for table in model.embeddings.tables.values():  # larger than they begin, so that a difference would show
            table.weight.normal_()
            table.weight[0] = 0
    batch = a_batch()
    genres = batch.features["genres"]
    summed = nn.functional.embedding_bag(
        genres.values, model.embeddings.table("genres"), genres.offsets, mode="sum", include_last_offset=True
    )
    user = model.embeddings.table("user")[batch.features["user"]]
    inputs = torch.cat([summed, user, batch.features["age"][:, None]], dim=1)
    first, second, last = model.tower.first.linear, model.tower.rest[2], model.tower.rest[5]
    hidden = nn.functional.batch_norm(first(inputs).relu(), None, None, training=True)
    hidden = nn.functional.batch_norm(second(hidden).relu(), None, None, training=True)
    torch.testing.assert_close(model.score(batch), last(hidden).squeeze(1))


def test_gradients_of_used_rows_are_those_of_a_plain_lookup() -> None:
    torch.manual_seed(0)
    model, batch = build("mlp", {"embedding_dim": 16, "hidden_dims": [], **WITHOUT_DROPOUT}, SCHEMA), a_batch()
    (model.score(batch) * torch.arange(40.0)).sum().backward()
    table = model.embeddings.table("user").detach().clone().requires_grad_()
    weight = model.tower.first.linear.weight[:, 16:32]
    plain = nn.functional.embedding(batch.features["user"], table, padding_idx=0) @ weight.detach().T
    (plain.squeeze(1) * torch.arange(40.0)).sum().backward()
    torch.testing.assert_close(model.embeddings.table("user").grad, table.grad)


def test_sparse_gradients_are_the_dense_ones_with_each_row_once() -> None:
    gradients = []
    for sparse in (False, True):
        torch.manual_seed(0)
        model = build("mlp", WITHOUT_DROPOUT, SCHEMA, sparse=sparse)
        model.loss(a_batch()).backward()
        gradients.append(model.embeddings.table("genres").grad)
    ids = gradients[1]._indices()[0]
    assert (ids[1:] > ids[:-1]).all()
    torch.testing.assert_close(gradients[1].to_dense(), gradients[0])


def test_dropout_of_embeddings_is_drawn_for_each_row_and_only_in_training() -> None:
    torch.manual_seed(0)
    model = build("mlp", {"hidden_dims": [], "embedding_dropout": 0.5}, SCHEMA)
    same = a_batch()
    same = Batch({**same.features, "user": torch.full((40,), 7), "age": torch.zeros(40),
                  "genres": Ragged(torch.zeros(0, dtype=torch.int64), torch.zeros(41, dtype=torch.int64))}, {})  # fmt: skip
    assert len(model.score(same).unique()) > 10
    assert len(model.eval().score(same).unique()) == 1


def test_numbers_alone_make_a_model() -> None:
    model = build("mlp", {}, Schema(columns=(AGE, LABEL)))
    assert model.score(Batch({"age": torch.randn(5)}, {})).shape == (5,)


def test_batch_norm_takes_one_row_and_keeps_its_statistics() -> None:
    norm = BatchNorm(3)
    norm(torch.randn(8, 3))
    before = norm.running_mean.clone()
    row = torch.randn(1, 3)
    assert torch.equal(norm(row), norm.eval()(row))
    assert torch.equal(norm.running_mean, before)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((USER,), "needs a label, and the prepared data has none"),
        ((LABEL,), "no feature column"),
        ((USER, numeric("prices", ragged=True), LABEL), "lists of numbers: prices"),
    ],
)
def test_a_schema_that_does_not_fit_is_a_config_error(columns: tuple[Column, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build("mlp", {}, Schema(columns=columns))


def test_wrong_names_and_options_are_config_errors() -> None:
    with pytest.raises(ConfigError, match=r"unknown model 'mlpp' \(did you mean mlp\?\)"):
        build("mlpp", {}, SCHEMA)
    with pytest.raises(ConfigError, match="embedding_dim"):
        build("mlp", {"embedding_dim": 0}, SCHEMA)


def test_weights_of_another_model_are_a_data_error(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model = build("mlp", {}, SCHEMA)
    with pytest.raises(MissingArtifactError, match="no checkpoint"):
        load_weights(model, tmp_path / "best.safetensors")
    save_file({"model.x": torch.zeros(1)}, tmp_path / "best.safetensors")
    with pytest.raises(DataError, match="not the weights of this model"):
        load_weights(model, tmp_path / "best.safetensors")
    (tmp_path / "best.safetensors").write_bytes(b"<html>")
    with pytest.raises(DataError, match="is damaged"):
        load_weights(model, tmp_path / "best.safetensors")
