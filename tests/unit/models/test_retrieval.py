"""Models of users and items in one space, their losses, and the catalog of their negatives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.model import TrainingContext
from recsys_cli.models.retrieval import two_tower
from recsys_cli.models.retrieval.factorization import MF, Graph, LightGCN
from recsys_cli.models.retrieval.negative_sampling import ItemCatalog, bpr, warp
from recsys_cli.models.retrieval.two_tower import TwoTower
from tests.planted import IDS, NUM_IDS, SCHEMA, Planted, found_by, learn, planted, popularity

ROWS = [  # user, item, label
    (3, 5, 1), (3, 9, 1), (3, 9, 1), (3, 7, 0),
    (4, 5, 1), (4, 7, 1), (4, 9, 1), (4, 12, 1), (4, 20, 1),
    (6, 12, 1), (6, 20, 0),
    (2, 5, 1), (6, 2, 1), (6, 1, 0),
]  # fmt: skip
CATALOG = [5, 7, 9, 12, 20]
LIKED = {3: {5, 9}, 4: set(CATALOG), 5: set(), 6: {12}}


def catalog(rows: list[tuple[int, int, int]] = ROWS) -> ItemCatalog:
    users, items, labels = (np.array(column) for column in zip(*rows, strict=True))
    interactions = Interactions(users.astype(np.int32), items.astype(np.int32), labels.astype(np.float32))
    return ItemCatalog(interactions, SCHEMA["user"], SCHEMA["item"], device=torch.device("cpu"))


def test_the_catalog_has_the_items_of_train_in_the_vocabulary() -> None:
    assert catalog().items.tolist() == CATALOG


def test_an_empty_catalog_is_an_error() -> None:
    with pytest.raises(DataError, match="no row of train has an item in the vocabulary"):
        catalog([(3, 2, 1), (3, 1, 1)])


def test_items_are_sampled_uniformly() -> None:
    torch.manual_seed(0)
    drawn = catalog().sample(2, 10_000)
    assert drawn.shape == (2, 10_000)
    shares = torch.bincount(drawn.flatten(), minlength=21)[CATALOG] / 20_000
    torch.testing.assert_close(shares, torch.full((5,), 0.2), atol=0.01, rtol=0)


@pytest.mark.parametrize("user", [3, 5, 6])
def test_sample_for_is_uniform_over_items_without_a_positive(user: int) -> None:
    torch.manual_seed(0)
    drawn = catalog().sample_for(torch.tensor([4, user, 4]), 20_000)[1]
    found, counts = drawn.unique(return_counts=True)
    free = sorted(set(CATALOG) - LIKED[user])
    assert found.tolist() == free
    torch.testing.assert_close(counts / 20_000, torch.full((len(free),), 1 / len(free)), atol=0.012, rtol=0)


def test_a_user_with_positives_of_all_items_gets_any_item() -> None:
    torch.manual_seed(0)
    assert catalog().sample_for(torch.tensor([4]), 200).unique().tolist() == CATALOG


def test_positives_of_a_large_catalog_are_never_sampled() -> None:
    draw = np.random.default_rng(0)
    rows = [
        (int(user), int(item), 1)
        for user, item in zip(draw.integers(3, 43, 900), draw.integers(3, 43, 900), strict=True)
    ]
    torch.manual_seed(0)
    users = torch.arange(3, 43)
    drawn = catalog(rows).sample_for(users, 500)
    pairs = {(user, item) for user, item, _ in rows}
    assert not any((int(user), int(item)) in pairs for user, items in zip(users, drawn, strict=True) for item in items)


@pytest.mark.parametrize("shorter", [0, 10**6])  # by the users of items, and by the items of users
def test_positives_returns_the_mask_of_pairs(monkeypatch: pytest.MonkeyPatch, shorter: int) -> None:
    monkeypatch.setattr("recsys_cli.models.retrieval.negative_sampling._SHORTER", shorter)
    users, items = torch.tensor([6, 3, 5, 3, 4]), torch.tensor([9, 12, 9, 5, 2, 7])
    expected = [[int(item) in LIKED[int(user)] for item in items] for user in users]
    assert catalog().positives(users, items).tolist() == expected


def test_an_item_has_its_share_of_the_positive_rows() -> None:
    share = catalog().share(torch.tensor([9, 5, 7, 2, 30]))
    torch.testing.assert_close(share, torch.tensor([3, 3, 1, 1, 1]) / 11)


def test_bpr_is_the_mean_over_pairs() -> None:
    loss = bpr(torch.tensor([2.0, 0.0]), torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    first = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1))) / 2
    torch.testing.assert_close(loss, torch.tensor([first, math.log(2)]))


@pytest.mark.parametrize(
    ("negative", "expected"),
    [
        ([-2.0, -0.5, 3.0], 0.5 * (1 + 1 / 2 + 1 / 3 + 1 / 4)),  # the second trial is the first violation: rank 9 // 2
        ([0.0, 5.0, 5.0], sum(1 / place for place in range(1, 10))),  # the first one is: rank 9
        ([-3.0, -1.0, -1.5], 0.0),  # none is; a distance of just the margin is none either
    ],
)
def test_warp_weights_the_first_violation_by_the_estimated_rank(negative: list[float], expected: float) -> None:
    loss = warp(torch.tensor([0.0]), torch.tensor([negative]), num_items=10)
    torch.testing.assert_close(loss, torch.tensor([expected]))


def test_warp_has_gradients_for_the_positive_and_the_first_violation_only() -> None:
    positive, negative = torch.zeros(1, requires_grad=True), torch.tensor([[-2.0, -0.5, 3.0]], requires_grad=True)
    warp(positive, negative, num_items=10).sum().backward()
    weight = 25 / 12
    torch.testing.assert_close(positive.grad, torch.tensor([-weight]))
    torch.testing.assert_close(negative.grad, torch.tensor([[0.0, weight, 0.0]]))


def two_items(**options: object) -> MF:
    """A model of items 3 and 4; user 3 likes item 3 and user 4 item 4, so the negative is the other one."""
    torch.manual_seed(0)
    model = build("mf", {"embedding_dim": 2, "loss": "bpr", "regularization": 0, **options}, SCHEMA)
    assert isinstance(model, MF)
    with torch.no_grad():
        model.embeddings.table("user")[3:5] = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        model.embeddings.table("item")[3:5] = torch.tensor([[0.5, 0.5, 0.25], [1.0, -1.0, 0.0]])
    both = np.array([3, 4], dtype=np.int32)
    model.set_context(TrainingContext(lambda: Interactions(both, both, np.ones(2, np.float32)), dict))
    return model


def rows(users: list[int], items: list[int], labels: list[float], weight: list[float] | None = None) -> Batch:
    features = {"user": torch.tensor(users), "item": torch.tensor(items)}
    return Batch(features, {"label": torch.tensor(labels)}, None if weight is None else torch.tensor(weight))


SCORES = {(3, 3): 0.75, (3, 4): 1.0, (4, 3): 1.25, (4, 4): -2.0}


def test_the_bias_of_an_item_is_added_to_the_product() -> None:
    model = two_items()
    batch = rows([3, 3, 4, 4], [3, 4, 3, 4], [0, 0, 0, 0])
    torch.testing.assert_close(model.score(batch), torch.tensor(list(SCORES.values())))
    torch.testing.assert_close(model.user_vectors(torch.tensor([4])), torch.tensor([[0.0, 2.0, 1.0]]))
    torch.testing.assert_close(model.item_vectors(torch.tensor([3])), torch.tensor([[0.5, 0.5, 0.25]]))


@pytest.mark.parametrize(
    ("loss", "first", "second"),
    [
        ("bpr", math.log(1 + math.exp(0.25)), math.log(1 + math.exp(3.25))),
        ("warp", 1 + 0.25, 1 + 3.25),  # the first of two items: rank 1, weight 1
        # Of 512 drawn items each is about half, and those that are liked do not count: the figure is that of the seed's draw.
        ("softmax", None, None),
    ],
)
def test_loss_is_the_mean_over_all_rows_of_what_the_positives_weigh(
    loss: str, first: float | None, second: float | None
) -> None:
    model = two_items(loss=loss)
    if first is None or second is None:
        torch.manual_seed(1)
        drawn = model.catalog.sample(512)
        others = torch.tensor([float((drawn == 4).sum()), float((drawn == 3).sum())])
        others = others * 2 / 512  # how often each is to be expected
        first, second = (torch.tensor([0.25, 3.25]).exp() * others).add(1).log().tolist()
    torch.manual_seed(1)
    # A label of 0.9 is a positive of that much; the weight of a row that is none does not matter.
    batch = rows([3, 4, 3, 4, 4], [3, 4, 4, 3, 4], [1, 0.9, 0, 0.5, 1], [1, 2, 100, 100, 0])
    torch.testing.assert_close(model.loss(batch), torch.tensor((first + 0.9 * 2 * second) / 5))


def test_rows_without_a_positive_label_teach_nothing() -> None:
    model = two_items()
    loss = model.loss(rows([3, 4], [4, 3], [0, 0]))
    loss.backward()
    assert loss == 0
    assert not any(parameter.grad.to_dense().any() for parameter in model.parameters())


def test_vectors_cost_their_squared_lengths_in_training_alone() -> None:
    batch = rows([3], [3], [1])
    lengths = 1.0 + (0.25 + 0.25 + 0.0625) + 2.0  # user 3, item 3, and item 4, which is drawn
    for options in ({}, {"num_negatives": 7}, {"loss": "warp"}):
        added = two_items(regularization=0.1, **options).loss(batch) - two_items(**options).loss(batch)
        assert two_items(regularization=0.1, **options).eval().loss(batch) == two_items(**options).loss(batch)
        torch.testing.assert_close(added, torch.tensor(0.1 * lengths))


def test_positives_are_drawn_where_they_are_not_avoided() -> None:
    torch.manual_seed(0)
    batch = rows([3] * 1_000, [3] * 1_000, [1.0] * 1_000)
    mean = two_items(filter_false_negatives=False).loss(batch)
    expected = (math.log(2) + math.log(1 + math.exp(0.25))) / 2  # half of the time it is compared with itself
    torch.testing.assert_close(mean, torch.tensor(expected), atol=0.01, rtol=0)


@pytest.mark.parametrize("loss", ["bpr", "warp", "softmax"])
def test_mf_finds_planted_groups(loss: str) -> None:
    torch.manual_seed(0)
    data = planted()
    model = learn(build("mf", {"loss": loss, "embedding_dim": 16}, SCHEMA), data)
    assert popularity(data) < 0.25
    assert found_by(model, data) > 0.5


@pytest.mark.parametrize(("loss", "expected"), [("bpr", 0.002), ("warp", 0.05), ("softmax", 0.05)])
def test_the_penalty_of_the_vectors_goes_by_the_loss_unless_it_is_given(loss: str, expected: float) -> None:
    assert two_items(loss=loss, regularization=None).objective.regularization == expected
    assert two_items(loss=loss, regularization=0.0).objective.regularization == 0.0


def adjacency(rows: Interactions) -> torch.Tensor:
    """The graph as the paper writes it: D^(-1/2) A D^(-1/2), dense, users first; shape (2 V, 2 V)."""
    liked = rows.labels > 0.5
    matrix = torch.zeros((2 * NUM_IDS, 2 * NUM_IDS), dtype=torch.float64)
    users, items = (
        torch.from_numpy(rows.user_idx[liked]).long(),
        torch.from_numpy(rows.item_idx[liked]).long() + NUM_IDS,
    )
    matrix[users, items] = matrix[items, users] = 1.0
    matrix[[0, 1, 2, NUM_IDS, NUM_IDS + 1, NUM_IDS + 2]] = 0
    matrix[:, [0, 1, 2, NUM_IDS, NUM_IDS + 1, NUM_IDS + 2]] = 0
    root = matrix.sum(dim=1).clamp(min=1).rsqrt()
    return root[:, None] * matrix * root


def with_others(data: Planted) -> Interactions:
    """The rows, with some negatives, one duplicate, and one of each id outside the vocabulary."""
    rows = data.train
    labels = rows.labels.copy()
    labels[::9] = 0
    extra = [(3, 2), (1, 5), (int(rows.user_idx[1]), int(rows.item_idx[1]))]
    users, items = (torch.tensor(ids, dtype=torch.int32).numpy() for ids in zip(*extra, strict=True))
    return Interactions(rows.user_idx, rows.item_idx, labels) + Interactions(users, items, labels[1:4])


def lightgcn(rows: Interactions, **options: object) -> LightGCN:
    torch.manual_seed(0)
    model = build("lightgcn", {"embedding_dim": 8, **options}, SCHEMA)
    assert isinstance(model, LightGCN)
    model.set_context(TrainingContext(lambda: rows, dict))
    return model


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_vectors_are_the_means_over_powers_of_the_graph(layers: int) -> None:
    rows = with_others(planted())
    model = lightgcn(rows, num_layers=layers)
    learnt = (
        torch.cat([model.embeddings.table("user"), model.embeddings.table("item")]).detach().double().requires_grad_()
    )
    matrix = adjacency(rows)
    expected, power = learnt, learnt
    for _ in range(layers):
        power = matrix @ power
        expected = expected + power
    expected = expected / (layers + 1)
    vectors = torch.cat([model.user_vectors(torch.arange(NUM_IDS)), model.item_vectors(torch.arange(NUM_IDS))])
    torch.testing.assert_close(vectors.double(), expected)
    # ... and gradients go the same way back, but for the rows of padding.
    target = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (expected * target).sum().backward()
    (vectors.double() * target).sum().backward()
    found = torch.cat([model.embeddings.table(name).grad for name in ("user", "item")])
    assert learnt.grad is not None
    learnt.grad[[0, NUM_IDS]] = 0
    torch.testing.assert_close(found.double(), learnt.grad, atol=1e-5, rtol=1e-4)


def test_vectors_are_computed_once_until_the_weights_change(monkeypatch: pytest.MonkeyPatch) -> None:
    model = lightgcn(planted().train)
    calls = []
    propagate = Graph.propagate
    monkeypatch.setattr(
        Graph, "propagate", lambda self, *tables, layers: calls.append(0) or propagate(self, *tables, layers=layers)
    )

    def vectors() -> torch.Tensor:
        with torch.inference_mode():
            return torch.cat([model.user_vectors(IDS), model.item_vectors(IDS)]).clone()

    before = vectors()
    assert torch.equal(vectors(), before)
    assert len(calls) == 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    model.loss(planted().batch()).backward()
    optimizer.step()
    after = vectors()
    with torch.no_grad():
        table = model.embeddings.table("user")
        table.data = table.data * 2  # as the moving average swaps weights
    swapped = vectors()
    model.load_state_dict({name: torch.zeros_like(weight) for name, weight in model.state_dict().items()})
    assert not torch.allclose(after, before)
    assert not torch.allclose(swapped, after)
    assert not vectors().any()


def test_a_longer_history_is_another_graph() -> None:
    data = planted()
    model = lightgcn(data.train).eval()
    with torch.no_grad():
        before = model.user_vectors(IDS).clone()
        model.set_context(TrainingContext(lambda: with_others(data), dict))
        assert not torch.allclose(model.user_vectors(IDS), before)


def test_the_contrastive_loss_compares_a_layer_with_the_mean_of_the_same_propagation() -> None:
    """Without noise it follows from the vectors, of each distinct user and item of the positives once."""
    data, options = planted(), {"weight": 0.5, "noise": 0.0, "temperature": 0.2, "layer": 2}
    batch = data.batch()
    plain, model = lightgcn(data.train), lightgcn(data.train, contrastive=options)
    tables = [model.embeddings.table(name).detach() for name in ("user", "item")]
    layers, means = model.graph.layers(*tables, 3), model.graph.propagate(*tables, layers=3)

    torch.manual_seed(1)
    without = plain.loss(batch)
    torch.manual_seed(1)
    loss = model.loss(batch)

    expected = 0.0
    for side, ids in enumerate((batch.features["user"], batch.features["item"])):
        ids = ids.long()[batch.labels["label"] > 0.5]
        distinct = ids.unique()
        first, second = (
            view[side][distinct] / view[side][distinct].norm(dim=1, keepdim=True) for view in (means, layers[2])
        )
        similarity = (first @ second.T / 0.2).exp()
        of_ids = dict(zip(distinct.tolist(), -(similarity.diagonal() / similarity.sum(1)).log(), strict=True))
        expected += sum(of_ids[one] for one in ids.tolist()) / batch.num_rows
    torch.testing.assert_close(loss - without, 0.5 * expected, rtol=1e-4, atol=1e-5)
    model.eval()
    torch.manual_seed(1)
    torch.testing.assert_close(model.loss(batch), without)


def test_noise_has_its_length_and_keeps_signs() -> None:
    model = lightgcn(planted().train)
    tables = [model.embeddings.table(name).detach() for name in ("user", "item")]

    plain, noisy = (model.graph.layers(*tables, 1, noise=noise)[1] for noise in (0.0, 0.1))

    for before, after in zip(plain, noisy, strict=True):
        moved = before.abs().sum(1) > 0
        torch.testing.assert_close((after - before)[moved].norm(dim=1), torch.full((int(moved.sum()),), 0.1))
        assert torch.equal(after.sign(), before.sign())


def test_the_layer_of_the_contrastive_loss_exists() -> None:
    with pytest.raises(ConfigError, match="more than num_layers, 2"):
        build("lightgcn", {"num_layers": 2, "contrastive": {"layer": 3}}, SCHEMA)


@pytest.mark.parametrize(
    "options",
    [{"loss": "bpr"}, {"loss": "softmax"}, {"contrastive": {"weight": 0.1, "temperature": 0.5}}],
    ids=["bpr", "softmax", "contrastive"],
)
def test_lightgcn_finds_planted_groups(options: dict[str, object]) -> None:
    data = planted()
    torch.manual_seed(0)
    model = learn(build("lightgcn", {"embedding_dim": 16, **options}, SCHEMA), data)
    assert popularity(data) < 0.25
    assert found_by(model, data) > 0.5


CONDITIONAL = torch.tensor([[50, 25, 12, 6, 4, 3], [60, 10, 10, 10, 5, 5]]) / 100
"""Choice probabilities of users 3 and 4 for items 3 to 8."""
USERS, ITEMS = torch.tensor([3, 4]), torch.arange(3, 9)


def chosen(model: TwoTower, steps: int = 400) -> torch.Tensor:
    """Train on rows with frequencies equal to their probability; return the softmax of the scores, shape (2, 6)."""
    counts = (CONDITIONAL * 100).round().long().flatten()
    users, items = (
        ids.flatten().repeat_interleave(counts).int() for ids in (USERS[:, None].expand(2, 6), ITEMS.expand(2, 6))
    )
    labels = torch.ones(len(users))
    model.set_context(TrainingContext(lambda: Interactions(users.numpy(), items.numpy(), labels.numpy()), dict))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(Batch({"user": users, "item": items}, {"label": labels})).backward()
        optimizer.step()
    with torch.no_grad():
        return model.eval().scores(USERS, ITEMS).softmax(dim=1)


def two_tower_model(**options: object) -> TwoTower:
    torch.manual_seed(0)
    model = build("two-tower", {"output_dim": 8, "embedding_dim": 8, "temperature": 0.2, **options}, SCHEMA)
    assert isinstance(model, TwoTower)
    return model


def test_with_log_q_scores_recover_choice_probabilities() -> None:
    torch.testing.assert_close(chosen(two_tower_model(num_negatives=0)), CONDITIONAL, atol=0.01, rtol=0)


def test_without_log_q_popular_items_are_pushed_down() -> None:
    found = chosen(two_tower_model(num_negatives=0, log_q=False))
    by_popularity = CONDITIONAL / CONDITIONAL.sum(dim=0)
    torch.testing.assert_close(found, by_popularity / by_popularity.sum(dim=1, keepdim=True), atol=0.01, rtol=0)
    assert (found - CONDITIONAL)[:, 0].abs().min() > 0.3


def test_sampled_negatives_are_corrected_by_their_expected_count(monkeypatch: pytest.MonkeyPatch) -> None:
    model = two_tower_model(num_negatives=240)
    monkeypatch.setattr(ItemCatalog, "sample", lambda self, number: self.items.repeat(40))
    torch.testing.assert_close(chosen(model), CONDITIONAL, atol=0.01, rtol=0)


def test_false_negatives_are_filtered_if_enabled() -> None:
    both = np.array([3, 4], dtype=np.int32)
    batch = Batch({"user": torch.tensor([3, 3]), "item": torch.tensor([3, 4])}, {"label": torch.ones(2)})
    losses = []
    for avoid in (True, False):
        model = two_tower_model(num_negatives=0, filter_false_negatives=avoid)
        model.set_context(
            TrainingContext(lambda: Interactions(np.full(2, 3, np.int32), both, np.ones(2, np.float32)), dict)
        )
        losses.append(model.loss(batch).item())
    assert losses[0] == 0
    assert losses[1] > 0.1


def test_large_batches_are_split_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_tower, "_MAX_ROWS", 3)
    assert [(part.start, part.stop) for part in two_tower._parts(7)] == [(0, 2), (2, 4), (4, 7)]
    assert [(part.start, part.stop) for part in two_tower._parts(0)] == [(0, 0)]
    data = planted()
    model = two_tower_model(num_negatives=0)
    model.set_context(data.known())

    def loss(*rows: int) -> torch.Tensor:
        batch = data.batch()
        return model.loss(
            Batch({name: ids[list(rows)] for name, ids in batch.features.items()}, {"label": torch.ones(len(rows))})
        )

    torch.testing.assert_close(loss(0, 50, 100, 150), (loss(0, 50) + loss(100, 150)) / 2)


def column(name: str, *, table: str | None, kind: Kind = Kind.CATEGORICAL, ragged: bool = False) -> Column:
    ids = {"cardinality": 9, "vocabulary": name} if kind is Kind.CATEGORICAL else {}
    return Column(name=name, role=Role.FEATURE, kind=kind, dtype="int32", table=table, ragged=ragged, **ids)


FEATURES = Schema(
    columns=(
        *SCHEMA.columns,
        column("genres", table="item", ragged=True),
        column("age", table="user", kind=Kind.NUMERIC),
        column("hour", table=None),
    )
)


def context_of(age: float, genre: int) -> TrainingContext:
    def join(ids):
        found = dict(ids)
        if "item" in ids:
            number = len(ids["item"])
            found["genres"] = Ragged(torch.full((number,), genre), torch.arange(number + 1))
        if "user" in ids:
            found["age"] = torch.full((len(ids["user"]),), age)
        return found

    return TrainingContext(lambda: planted().train, join)


@pytest.mark.parametrize("hidden", [(), (16,)])
def test_each_tower_reads_the_features_of_its_id(hidden: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = build("two-tower", {"hidden_dims": hidden}, FEATURES).eval()
    assert isinstance(model, TwoTower)
    ids = torch.tensor([5, 6])

    def vectors(age: float, genre: int) -> tuple[torch.Tensor, torch.Tensor]:
        model.set_context(context_of(age, genre))
        return model.user_vectors(ids), model.item_vectors(ids)

    user, item = vectors(0.1, 3)
    older, same = vectors(0.9, 3)
    assert torch.equal(item, same)
    assert not torch.allclose(user, older)
    same, comedy = vectors(0.1, 4)
    assert torch.equal(user, same)
    assert not torch.allclose(item, comedy)
    torch.testing.assert_close(item.norm(dim=1), torch.ones(2))
    assert set(model.users.embeddings.names) | set(model.items.embeddings.names) == {"user", "item", "genres"}


def test_a_list_of_numbers_is_rejected() -> None:
    columns = (*SCHEMA.columns, column("prices", table="item", kind=Kind.NUMERIC, ragged=True))
    with pytest.raises(ConfigError, match="does not support lists of numbers: prices"):
        build("two-tower", {}, Schema(columns=columns))


def test_widths_are_given_for_columns_of_towers() -> None:
    model = build("two-tower", {"embedding_dim": {"genres": 3, "user": 5}}, FEATURES)
    assert model.items.embeddings.dims == {"genres": 3, "item": 16}
    assert model.users.embeddings.dims == {"user": 5}
    with pytest.raises(ConfigError, match="no categorical column 'hour'"):
        build("two-tower", {"embedding_dim": {"hour": 3}}, FEATURES)


@pytest.mark.parametrize("options", [{}, {"num_negatives": 0}, {"hidden_dims": (32,), "filter_false_negatives": True}])
def test_two_tower_finds_planted_groups(options: dict[str, object]) -> None:
    data = planted()
    torch.manual_seed(0)
    model = learn(build("two-tower", {"output_dim": 16, **options}, SCHEMA), data)
    assert popularity(data) < 0.25
    assert found_by(model, data) > 0.5
