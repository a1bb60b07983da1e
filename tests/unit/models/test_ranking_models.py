"""Ranking models against the formulas of their papers, written out by hand."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.models import build
from recsys_cli.models.embedding import Embeddings
from recsys_cli.models.layers import BatchNorm
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.networks import Cross, FirstOrder, pairwise_products, sum_of_pairs

ROWS = 12
SIZES = {"user": 9, "item": 8, "genres": 7}


def categorical(name: str, role: Role = Role.FEATURE, *, ragged: bool = False) -> Column:
    return Column(
        name=name, role=role, kind=Kind.CATEGORICAL, dtype="int32", cardinality=SIZES[name], vocabulary=name, ragged=ragged
    )  # fmt: skip


def numeric(name: str, role: Role = Role.FEATURE) -> Column:
    return Column(name=name, role=role, kind=Kind.NUMERIC, dtype="float32")


IDS = (categorical("user", Role.USER), categorical("item", Role.ITEM), categorical("genres", ragged=True))
NUMBERS = (numeric("price"), numeric("age"))
LABEL, CLICK = numeric("label", Role.LABEL), numeric("click", Role.LABEL)
SCHEMA = Schema(columns=(*IDS, *NUMBERS, LABEL))


def a_batch() -> Batch:
    draw = torch.Generator().manual_seed(0)
    offsets = torch.tensor([0, *torch.randint(0, 4, (ROWS,), generator=draw).tolist()]).cumsum(0)
    length = int(offsets[-1])
    ids = {name: torch.randint(0, SIZES[name], (ROWS,), generator=draw) for name in ("user", "item")}
    genres = Ragged(torch.randint(0, 7, (length,), generator=draw), offsets, torch.rand(length, generator=draw))
    others = {name: torch.randn(ROWS, generator=draw) for name in ("price", "age")}
    labels = {name: torch.randint(0, 2, (ROWS,), generator=draw).float() for name in ("label", "click")}
    return Batch({**ids, "genres": genres, **others}, labels)


def a_model(name: str, schema: Schema = SCHEMA, **options: Any) -> RankingModel:
    """A model in evaluation mode with large weights, so that errors show; row 0 of tables stays padding."""
    torch.manual_seed(0)
    model = build(name, options, schema)
    assert isinstance(model, RankingModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                module.weight[0] = 0
    return model.eval()


def looked_up(tables: Embeddings, batch: Batch) -> dict[str, Tensor]:
    """The embeddings of each row, shape (B, D), row by row and id by id."""
    found = {}
    for name in tables.names:
        table, feature = tables.table(name).detach(), batch.features[name]
        if isinstance(feature, Ragged):
            weighted = table[feature.values] * feature.weights[:, None]  # type: ignore[index]
            spans = feature.offsets.tolist()
            found[name] = torch.stack([weighted[start:stop].sum(0) for start, stop in pairwise(spans)])
        else:
            found[name] = table[feature]
    return found


def dense(batch: Batch) -> Tensor:
    return torch.stack([batch.features["age"], batch.features["price"]], dim=1)  # type: ignore[list-item]


# -- what features add one by one, and in pairs -------------------------------------------------------------------------


def what_each_adds(first: FirstOrder, batch: Batch) -> Tensor:
    return first.bias + sum(looked_up(first.weights, batch).values())


def test_logistic_is_an_intercept_plus_first_order_terms() -> None:
    model, batch = a_model("logistic"), a_batch()
    first = model.first_order
    expected = what_each_adds(first, batch) + dense(batch) @ first.slopes.T
    torch.testing.assert_close(model.logits(batch), expected)


@pytest.mark.parametrize("labels", [(LABEL,), (LABEL, CLICK)], ids=["one", "two"])
def test_fm_adds_the_dot_product_of_every_pair(labels: tuple[Column, ...]) -> None:
    model, batch = a_model("fm", Schema(columns=(*IDS, *NUMBERS, *labels)), embedding_dim=3), a_batch()
    machine, first = model.machine, model.machine.first_order
    numbers = dense(batch)
    fields = list(looked_up(machine.vectors, batch).values())
    fields += [numbers[:, [place]] * machine.directions[place] for place in range(2)]
    expected = what_each_adds(first, batch) + numbers @ first.slopes.T
    for one, other in combinations(fields, 2):
        products = (one * other).view(ROWS, len(labels), 3)
        expected = expected + products.sum(2)
    torch.testing.assert_close(model.logits(batch), expected)


def test_the_sum_of_pairs_takes_each_pair_once() -> None:
    fields = [torch.tensor([[2.0]]), torch.tensor([[3.0]]), torch.tensor([[5.0]])]
    assert sum_of_pairs(fields).item() == 2 * 3 + 2 * 5 + 3 * 5
    assert sum_of_pairs(fields[:1]).item() == 0


def test_deepfm_is_an_fm_and_a_tower_over_its_vectors() -> None:
    model, batch = a_model("deepfm", embedding_dim=3, hidden_dims=(6,)), a_batch()
    fm = a_model("fm", embedding_dim=3)
    fm.machine.load_state_dict(model.machine.state_dict())
    vectors = looked_up(model.machine.vectors, batch)
    deep = model.tower.rest(model.tower.first.linear(torch.cat([*vectors.values(), dense(batch)], dim=1)))
    torch.testing.assert_close(model.logits(batch), fm.logits(batch) + deep)


# -- towers beside something --------------------------------------------------------------------------------------------


def test_wide_deep_is_a_linear_model_plus_a_tower_over_the_selected_columns() -> None:
    model = a_model(
        "wide-deep", wide=("user", "price"), deep=("item", "genres", "age"), embedding_dim=4, hidden_dims=(6,)
    )
    batch = a_batch()
    price, age = (batch.features[name][:, None] for name in ("price", "age"))  # type: ignore[index]
    wide = model.wide.bias + price @ model.wide.slopes.T + looked_up(model.wide.weights, batch)["user"]
    embeddings = looked_up(model.embeddings, batch)
    inputs = torch.cat([embeddings["genres"], embeddings["item"], age], dim=1)
    torch.testing.assert_close(model.logits(batch), wide + model.tower.rest(model.tower.first.linear(inputs)))


def test_wide_deep_uses_all_columns_in_both_parts_by_default() -> None:
    model = a_model("wide-deep")
    assert model.wide.weights.names == model.embeddings.names == ("genres", "item", "user")
    assert [*model.wide_numeric.widths] == [*model.deep_numeric.widths] == ["age", "price"]


@pytest.mark.parametrize("option", ["wide", "deep"])
def test_an_unknown_column_is_named_with_a_suggestion(option: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.{option}: no feature column 'genre' \(did you mean genres\?\)"):
        build("wide-deep", {option: ("genre",)}, SCHEMA)


def test_neumf_is_the_sum_of_products_and_tower() -> None:
    model, batch = a_model("neumf", mf_dim=3, embedding_dim=4, hidden_dims=(6,)), a_batch()
    vectors = looked_up(model.vectors, batch)
    products = (vectors["user"] * vectors["item"]) @ model.products.weight.T
    inputs = torch.cat([*looked_up(model.embeddings, batch).values(), dense(batch)], dim=1)
    torch.testing.assert_close(model.logits(batch), products + model.tower.rest(model.tower.first.linear(inputs)))


def test_neumf_without_content_reads_only_ids() -> None:
    model, batch = a_model("neumf", content=False), a_batch()
    assert model.embeddings.names == model.vectors.names == ("item", "user")
    ids = Batch({name: batch.features[name] for name in ("user", "item")}, {})
    torch.testing.assert_close(model.logits(batch), model.logits(ids))


def test_neumf_needs_ids_of_users_and_items() -> None:
    with pytest.raises(ConfigError, match="exactly one item column, but has 0"):
        build("neumf", {}, Schema(columns=(IDS[0], LABEL)))
    with pytest.raises(ConfigError, match="neumf needs categorical user and item columns, and age is none"):
        build("neumf", {}, Schema(columns=(IDS[0], numeric("age", Role.ITEM), LABEL)))


# -- DLRM ---------------------------------------------------------------------------------------------------------------


def test_pairwise_products_are_those_of_each_pair_once() -> None:
    fields = [torch.randn(5, 4) for _ in range(4)]
    expected = [(fields[i] * fields[j]).sum(1) for i in range(4) for j in range(i)]
    torch.testing.assert_close(pairwise_products(fields), torch.stack(expected, dim=1))


def test_dlrm_is_a_linear_model_plus_the_top_mlp() -> None:
    model, batch = a_model("dlrm", embedding_dim=4, bottom_mlp=(5,), top_mlp=(6,)), a_batch()
    numbers = model.bottom.rest(model.bottom.first.linear(dense(batch)))
    genres, item, user = looked_up(model.embeddings, batch).values()
    pairs = [(genres, numbers), (item, numbers), (item, genres), (user, numbers), (user, genres), (user, item)]
    inputs = torch.cat([numbers, torch.stack([(one * other).sum(1) for one, other in pairs], dim=1)], dim=1)
    alone = what_each_adds(model.first_order, batch) + dense(batch) @ model.first_order.slopes.T
    torch.testing.assert_close(model.logits(batch), alone + model.top.rest(model.top.first.linear(inputs)))


def test_dlrm_without_numeric_features_uses_pairs_of_ids() -> None:
    model, batch = a_model("dlrm", Schema(columns=(*IDS[:2], LABEL)), embedding_dim=4, top_mlp=()), a_batch()
    item, user = looked_up(model.embeddings, batch).values()
    product = (item * user).sum(1, keepdim=True)
    torch.testing.assert_close(
        model.logits(batch), what_each_adds(model.first_order, batch) + model.top.first.linear(product)
    )


# -- DCN-V2 -------------------------------------------------------------------------------------------------------------


def test_a_cross_layer_is_the_written_formula() -> None:
    layer = Cross(2)
    with torch.no_grad():
        layer.up.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        layer.up.bias.copy_(torch.tensor([10.0, 20.0]))
    first, here = torch.tensor([[2.0, 3.0]]), torch.tensor([[1.0, -1.0]])
    # W x + b = (1 - 2 + 10, 3 - 4 + 20) = (9, 19); x0 * that + x
    assert layer(first, here).tolist() == [[2 * 9 + 1, 3 * 19 - 1]]


def test_a_low_rank_cross_is_a_product_of_two_matrices_and_full_rank_is_any_matrix() -> None:
    thin, full, whole = Cross(4, 2), Cross(4, 4), Cross(4)
    assert [tuple(parameter.shape) for parameter in thin.parameters()] == [(2, 4), (4, 2), (4,)]
    first, here = torch.randn(3, 4), torch.randn(3, 4)
    product = thin.up.weight @ thin.down.weight
    torch.testing.assert_close(thin(first, here), first * (here @ product.T + thin.up.bias) + here)
    with torch.no_grad():  # W = (U S) Vᵀ
        left, scale, right = torch.linalg.svd(whole.up.weight)
        full.up.weight.copy_(left * scale)
        full.down.weight.copy_(right)
        full.up.bias.copy_(whole.up.bias)
    torch.testing.assert_close(full(first, here), whole(first, here))


@pytest.mark.parametrize("rank", [None, 3])
def test_dcn_stacks_its_tower_on_the_crosses_or_adds_both(rank: int | None) -> None:
    options = {
        "embedding_dim": {"user": 3, "item": 4, "genres": 2},
        "hidden_dims": (6,),
        "rank": rank,
        "num_cross_layers": 3,
    }
    batch = a_batch()
    for structure in ("stacked", "parallel"):
        model = a_model("dcn-v2", structure=structure, **options)
        first = torch.cat([*looked_up(model.embeddings, batch).values(), dense(batch)], dim=1)
        crossed = first
        for layer in model.layers:
            crossed = layer(first, crossed)
        inputs, beside = (crossed, 0) if model.crossed is None else (first, crossed @ model.crossed.weight.T)
        assert (model.crossed is None) == (structure == "stacked")
        expected = model.tower.rest(model.tower.first.linear(inputs)) + beside
        torch.testing.assert_close(model.logits(batch), expected)


# -- what they share ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logistic", "fm", "deepfm", "wide-deep", "dlrm", "dcn-v2"])
@pytest.mark.parametrize("columns", [IDS[:1], NUMBERS], ids=["ids", "numbers"])
def test_one_kind_of_feature_is_enough(name: str, columns: tuple[Column, ...]) -> None:
    torch.manual_seed(0)
    model, batch = build(name, {"regularization": 0.1}, Schema(columns=(*columns, LABEL))), a_batch()
    model.loss(batch).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", ["mlp", "logistic", "fm", "deepfm", "wide-deep", "neumf", "dlrm", "dcn-v2"])
def test_the_l2_penalty_applies_in_training_only(name: str) -> None:
    batch = a_batch()
    model, free = a_model(name, regularization=0.5), a_model(name, regularization=0.0)
    assert model.loss(batch) == free.loss(batch) == free.loss_of(free.logits(batch), batch)
    losses = []
    for one in (model, free):
        torch.manual_seed(0)  # drops the same of both
        losses.append(one.train().loss(batch))
    assert losses[0] > losses[1]


@pytest.mark.parametrize("name", ["mlp", "deepfm", "wide-deep", "neumf", "dlrm", "dcn-v2"])
@pytest.mark.parametrize("batch_norm", [True, False])
def test_batch_norm_follows_each_hidden_layer_if_enabled(name: str, batch_norm: bool) -> None:
    widths = "top_mlp" if name == "dlrm" else "hidden_dims"
    model = a_model(name, **{widths: (6, 5)}, batch_norm=batch_norm)
    tower = model.get_submodule("top" if name == "dlrm" else "tower")
    assert sum(isinstance(module, BatchNorm) for module in tower.modules()) == 2 * batch_norm


@pytest.mark.parametrize("name", ["mlp", "deepfm", "wide-deep", "neumf", "dlrm", "dcn-v2"])
@pytest.mark.parametrize("option", ["dropout", "embedding_dropout"])
def test_dropout_applies_in_training_only(name: str, option: str) -> None:
    batch = a_batch()
    none = {"dropout": 0.0, "embedding_dropout": 0.0}
    model, plain = a_model(name, **{**none, option: 0.5}), a_model(name, **none)
    assert torch.equal(model.logits(batch), plain.logits(batch))
    model.train()
    assert not torch.equal(model.logits(batch), model.logits(batch))
    plain.train()
    assert torch.equal(plain.logits(batch), plain.logits(batch))


def test_the_l2_penalty_is_the_squared_norm_of_each_rows_embeddings() -> None:
    model = a_model("fm", regularization=0.5, embedding_dim=3)
    free = a_model("fm", regularization=0.0, embedding_dim=3)
    batch = Batch(a_batch().features, a_batch().labels, torch.rand(ROWS))
    cost = torch.zeros(ROWS)
    for tables in (model.machine.vectors, model.machine.first_order.weights):
        for vectors in looked_up(tables, batch).values():
            cost += vectors.square().sum(1)
    expected = free.loss(batch) + 0.5 * (cost * batch.weight).mean()  # type: ignore[operator]
    torch.testing.assert_close(model.train().loss(batch), expected)


# -- experts of several labels ------------------------------------------------------------------------------------------

SEVERAL = Schema(columns=(*IDS, *NUMBERS, LABEL, CLICK))


def mixture(gate: nn.Module, inputs: Tensor, experts: list[Tensor]) -> Tensor:
    """The mean of the experts by the softmax of the gate, expert by expert."""
    shares = (inputs @ gate.weight.T).softmax(dim=1)  # type: ignore[operator, union-attr]
    return sum(shares[:, [place]] * expert.relu() for place, expert in enumerate(experts))  # type: ignore[return-value]


def test_each_label_of_mmoe_mixes_the_shared_experts_by_its_own_gate() -> None:
    model, batch = a_model("mmoe", SEVERAL, embedding_dim=3, hidden_dims=(6, 4), num_experts=3), a_batch()
    inputs = torch.cat([*looked_up(model.embeddings, batch).values(), dense(batch)], dim=1)
    experts = [expert((), inputs) for expert in model.experts]
    expected = [
        tower((), mixture(gate, inputs, experts)) for gate, tower in zip(model.gates, model.towers, strict=True)
    ]
    assert len(expected) == 2
    torch.testing.assert_close(model.logits(batch), torch.cat(expected, dim=1))


def test_each_label_of_ple_sees_its_own_experts_and_the_shared_ones() -> None:
    options = {
        "embedding_dim": 3,
        "hidden_dims": (4,),
        "num_layers": 2,
        "num_label_experts": 2,
        "num_shared_experts": 1,
    }
    model, batch = a_model("ple", SEVERAL, **options), a_batch()
    inputs = torch.cat([*looked_up(model.embeddings, batch).values(), dense(batch)], dim=1)
    first, last = model.layers
    of_first, of_second, shared = ([expert((), inputs) for expert in group] for group in first.experts)
    states = [
        mixture(gate, inputs, seen)
        for gate, seen in zip(
            first.gates, (of_first + shared, of_second + shared, of_first + of_second + shared), strict=True
        )
    ]
    of_first, of_second, shared = (
        [expert((), own) for expert in group] for group, own in zip(last.experts, states, strict=True)
    )
    outputs = [
        mixture(last.gates[0], states[0], of_first + shared),
        mixture(last.gates[1], states[1], of_second + shared),
    ]
    expected = [tower((), own) for tower, own in zip(model.towers, outputs, strict=True)]
    torch.testing.assert_close(model.logits(batch), torch.cat(expected, dim=1))
