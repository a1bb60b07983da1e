"""Sequence models on a circle of items with a fixed next item: predictions, causality, losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.configs.sequence import SequenceOptions, TransformerOptions
from recsys_cli.models.model import TrainingContext
from recsys_cli.models.sequence.histories import Jagged, Windows
from recsys_cli.models.sequence.losses import FalseNegatives
from recsys_cli.models.sequence.model import SequenceModel
from recsys_cli.models.sequence.networks import LigrBlock

USERS, ITEMS, LENGTH = 60, 30, 8
SCHEMA = Schema(
    columns=(
        Column(name="user", role=Role.USER, kind=Kind.CATEGORICAL, dtype="int32", cardinality=USERS + 4, vocabulary="u"),
        Column(name="item", role=Role.ITEM, kind=Kind.CATEGORICAL, dtype="int32", cardinality=ITEMS + 3, vocabulary="i"),
        Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
        Column(name="time", role=Role.TIMESTAMP, kind=Kind.NUMERIC, dtype="int64"),
    )
)  # fmt: skip
SMALL = {"embedding_dim": 32, "max_seq_len": LENGTH, "dropout": 0.0}
CAUSAL = ["sasrec", "gru4rec", "hstu"]
ALL = [*CAUSAL, "bert4rec"]


def item_at(user: np.ndarray[Any, Any], step: np.ndarray[Any, Any] | int) -> np.ndarray[Any, Any]:
    """The user's item at a step: users begin anywhere on the circle and go 7 items on each time."""
    return (3 + (user * 11 + step * 7) % ITEMS).astype(np.int32)


def context_of(steps: int = 10, *, labels: np.ndarray[Any, Any] | None = None) -> TrainingContext:
    """First steps of 60 users, 3 to 62, with rows in random order. User 63 has no history."""
    user, step = (part.ravel() for part in np.meshgrid(np.arange(3, USERS + 3), np.arange(steps)))
    order = np.random.default_rng(0).permutation(len(user))
    user, step = user[order], step[order]
    labels = np.ones(len(user), np.float32) if labels is None else labels
    interactions = Interactions(user.astype(np.int32), item_at(user, step), labels, times=step)
    return TrainingContext(lambda: interactions, dict)


def a_model(name: str, *, steps: int = 10, sparse: bool = False, **options: Any) -> SequenceModel:
    torch.manual_seed(0)
    model = build(name, {**SMALL, **options}, SCHEMA, sparse=sparse)
    assert isinstance(model, SequenceModel)
    model.set_context(context_of(steps))
    return model


def users_batch(users: torch.Tensor, **fields: Any) -> Batch:
    return Batch({"user": users.int()}, {"label": torch.ones(len(users))}, **fields)


EVERYBODY = torch.arange(3, USERS + 3)
CATALOGUE = torch.arange(3, ITEMS + 3)


def hit_rate(model: SequenceModel) -> float:
    """Share of users with the true next item as the best unseen one."""
    met = torch.stack([torch.from_numpy(item_at(EVERYBODY.numpy(), step)) for step in range(10)], dim=1).long() - 3
    with torch.inference_mode():
        best = 3 + model.eval().scores(EVERYBODY, CATALOGUE).scatter(1, met, -torch.inf).argmax(dim=1)
    return float((best == torch.from_numpy(item_at(EVERYBODY.numpy(), 10))).float().mean())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sasrec", {}),
        ("sasrec", {"layer": "ligr"}),
        ("hstu", {}),
        ("gru4rec", {}),
        ("bert4rec", {"num_layers": 1, "last_share": 0.9}),
        ("sasrec", {"num_negatives": 8}),
        ("gru4rec", {"num_negatives": 8}),
    ],
)
def test_the_next_item_is_predicted(name: str, options: dict[str, Any]) -> None:
    assert learns(a_model(name, **options), steps=80)


@pytest.mark.parametrize("options", [{"num_negatives": 8}, {"num_negatives": "all"}])
def test_gbce_predicts_the_next_item(options: dict[str, Any]) -> None:
    assert learns(a_model("sasrec", loss="gbce", **options), steps=80)


def learns(model: SequenceModel, *, steps: int) -> bool:
    assert hit_rate(model) < 0.3
    optimizer = torch.optim.Adam(model.train().parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(users_batch(EVERYBODY)).backward()
        optimizer.step()
    return hit_rate(model) > 0.9


@pytest.mark.parametrize("name", CAUSAL)
def test_states_are_causal(name: str) -> None:
    model = a_model(name).eval()
    assert isinstance(model, SequenceModel)
    vectors = torch.randn(2, LENGTH, 32)
    changed = vectors.clone()
    changed[:, 5] = -vectors[:, 5]
    layout = Jagged(torch.full((2,), LENGTH))
    before, after = (model.states(one.flatten(0, 1), layout).view(2, LENGTH, 32) for one in (vectors, changed))
    torch.testing.assert_close(after[:, :5], before[:, :5])
    assert all(not torch.allclose(after[:, place], before[:, place], atol=1e-4) for place in (5, 7))


def test_bert4rec_is_bidirectional() -> None:
    model = a_model("bert4rec").eval()
    vectors = torch.randn(LENGTH, 32)
    changed = vectors.clone()
    changed[5] = -vectors[5]
    layout = Jagged(torch.tensor([LENGTH]))
    network: Any = model.network
    assert not torch.allclose(network(changed, layout)[:5], network(vectors, layout)[:5], atol=1e-4)


@pytest.mark.parametrize("name", ["sasrec", "bert4rec", "hstu"])
def test_positions_are_counted_from_the_end(name: str) -> None:
    """The latest item has the last position, however many items there are; the first positions are those of a full sequence."""
    model: Any = a_model(name).eval()
    network = model.network
    counts = torch.arange(1, LENGTH + 1)
    layout = Jagged(counts)
    vectors = torch.randn(int(counts.sum()), 32)

    def at_the_end(moved: int) -> torch.Tensor:
        with torch.no_grad():
            network.positions.zero_()[moved] = 1 - 2 * (torch.arange(32) % 2)
            return model.states(vectors, layout)[layout.last]

    with torch.no_grad():
        network.positions.zero_()
        none = model.states(vectors, layout)[layout.last]
    for place in range(LENGTH):
        moves = (at_the_end(place) - none).abs().amax(dim=1) > 1e-4
        assert moves.tolist() == [count >= LENGTH - place for count in counts.tolist()]


@pytest.mark.parametrize("name", ALL)
def test_items_before_max_seq_len_change_nothing(name: str) -> None:
    """30 steps are once around the circle: after 12 and after 42 of them the latest items are the same."""
    model = a_model(name, steps=12).eval()
    vectors = model.user_vectors(EVERYBODY)
    model.set_context(context_of(42))
    torch.testing.assert_close(model.user_vectors(EVERYBODY), vectors)
    model.set_context(context_of(11))
    assert not torch.allclose(model.user_vectors(EVERYBODY), vectors, atol=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_users_without_a_history_have_the_empty_state(name: str) -> None:
    vectors = a_model(name).eval().user_vectors(torch.tensor([0, 1, 2, 63, 3]))
    assert torch.isfinite(vectors).all()
    torch.testing.assert_close(vectors[:4], vectors[:1].expand(4, -1))
    assert not torch.allclose(vectors[4], vectors[0], atol=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_a_user_is_encoded_once_per_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, read = a_model(name).eval(), []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda users: read.append(users.tolist()) or encode(users))
    batch = Batch({"user": torch.tensor([5, 4, 5, 5, 4]), "item": torch.tensor([3, 3, 4, 2, 9])}, {})
    scores = model.score(batch)
    assert read == [[4, 5]]
    torch.testing.assert_close(scores, model.scores(batch.features["user"], batch.features["item"]).diag())


@pytest.mark.parametrize("name", CAUSAL)
def test_loss_is_a_mean_of_users_and_weighted_by_target(name: str) -> None:
    model = a_model(name, max_seq_len=9).eval()  # whole histories and the whole catalog: nothing is drawn
    interactions = context_of().interactions()

    def loss(users: torch.Tensor = EVERYBODY, weights: np.ndarray[Any, Any] | None = None) -> torch.Tensor:
        model.set_context(TrainingContext(lambda: replace(interactions, weights=weights), dict))
        return model.loss(users_batch(users))

    whole, weights = loss(), np.random.default_rng(1).random(len(interactions)).astype(np.float32)
    torch.testing.assert_close((loss(EVERYBODY[:20]) * 20 + loss(EVERYBODY[20:]) * 40) / 60, whole)
    torch.testing.assert_close(loss(weights=weights) + loss(weights=1 - weights), whole)
    assert not torch.allclose(loss(weights=weights), whole / 2)
    of_inputs = np.where(interactions.times == 0, 5, 1).astype(np.float32)  # the first item is no target
    torch.testing.assert_close(loss(weights=of_inputs), whole)


@pytest.mark.parametrize("name", CAUSAL)
def test_loss_is_the_cross_entropy_of_each_next_item_among_unseen_items(name: str) -> None:
    model: Any = a_model(name, max_seq_len=9).eval()
    items = torch.from_numpy(np.stack([item_at(EVERYBODY.numpy(), step) for step in range(10)], axis=1)).long()
    table = model.items.table("item").detach()
    states = model.states(table[items[:, :-1].flatten()], Jagged(torch.full((60,), 9))).view(60, 9, -1)
    logits = states @ table[CATALOGUE].T
    for place in range(9):
        logits[:, place].scatter_(1, items[:, : place + 1] - 3, -torch.inf)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), items[:, 1:].flatten() - 3)
    torch.testing.assert_close(model.loss(users_batch(EVERYBODY)), expected)


@pytest.mark.parametrize("name", CAUSAL)
def test_the_target_and_its_input_are_false_negatives(name: str) -> None:
    model = a_model(name)
    windows = Windows(torch.tensor([7, 8, 9, 8, 5, 6]), torch.tensor([4, 2]))
    targets = torch.tensor([False, True, True, True, False, True])
    places = ["..xx.", "x.xxx", "x.xxx", "....."]  # the third is that of an item which comes again
    assert false_negatives(model, windows, targets, [9, 4, 7, 8, 9]) == places


def false_negatives(model: SequenceModel, windows: Windows, targets: torch.Tensor, negatives: list[int]) -> list[str]:
    """Return a row for each target, with an x for each negative that is false."""
    pairs = FalseNegatives.of(windows.items, *model.false_negatives(windows, targets), torch.tensor(negatives))
    scores = torch.zeros(int(targets.sum()), len(negatives))
    scores.view(-1)[pairs.of_block(slice(0, len(scores)), len(negatives))] = 1
    return ["".join(".x"[int(one)] for one in row) for row in scores]


@pytest.mark.parametrize(("power", "name"), [(0.0, "sasrec"), (0.5, "gru4rec"), (1.0, "bert4rec")])
def test_negatives_are_sampled_by_frequency_to_the_power(power: float, name: str) -> None:
    """One item comes a hundred times as often as another."""
    often, seldom = np.full(300, 3, np.int32), np.full(3, 4, np.int32)
    items = np.concatenate([often, seldom])
    users = (3 + np.arange(len(items)) % USERS).astype(np.int32)
    rows = Interactions(users, items, np.ones(len(items), np.float32), times=np.arange(len(items)))
    model = a_model(name, num_negatives=20, negative_sampling_power=power)
    model.set_context(TrainingContext(lambda: rows, dict))
    drawn, log_expected = zip(*(model.negatives.sample() for _ in range(1_000)), strict=True)
    counts = torch.bincount(torch.cat(drawn), minlength=ITEMS + 3).double()
    expected = torch.zeros(ITEMS + 3, dtype=torch.float64)
    expected[3:] = torch.tensor([300.0, 3.0, *[0.0] * (ITEMS - 2)]).double() ** power
    expected *= 20_000 / expected.sum()
    torch.testing.assert_close(counts, expected, rtol=0.1, atol=5 * float(expected.max()) ** 0.5)
    sampled = torch.cat(log_expected).exp().double()
    torch.testing.assert_close(sampled, expected[torch.cat(drawn)] / 1_000, rtol=1e-4, atol=1e-6)


def test_unmasked_items_are_false_negatives_of_bert4rec() -> None:
    model = a_model("bert4rec")
    windows = Windows(torch.tensor([7, 8, 9, 10, 5, 6]), torch.tensor([4, 2]))
    targets = torch.tensor([False, True, False, True, False, True])
    places = ["xxx..", "x.xx.", "....x"]
    assert false_negatives(model, windows, targets, [7, 8, 9, 10, 5]) == places


def test_initial_blocks_change_their_input_little() -> None:
    model: Any = build("sasrec", {"dropout": 0.0, "max_seq_len": 20}, SCHEMA)
    states = torch.randn(4, 20, 64) * 0.08  # as items begin: a deviation of 0.01, times the root of the width
    layout = Jagged(torch.full((4,), 20))
    with torch.inference_mode():
        changed = states = states.flatten(0, 1)
        for block in model.network.blocks:
            changed = block(changed, layout)
    assert float((changed - states).std() / states.std()) < 0.5


def test_bert4rec_masks_items_of_every_user_and_no_padding() -> None:
    model: Any = a_model("bert4rec", steps=4, mask_share=0.2, last_share=0.0)
    windows = model.histories.random_windows(torch.tensor([2]), LENGTH)
    assert model._sample_masks(windows).tolist() == [False]
    windows = model.histories.random_windows(torch.arange(3, 63).repeat(100), LENGTH)
    masked = model._sample_masks(windows).view(-1, 4)
    assert masked.any(dim=1).all()
    # Of four items the first is masked in a fifth of the cases; the last also where none was, in 0.8⁴ of them.
    assert masked.float().mean(dim=0).tolist() == pytest.approx([0.2, 0.2, 0.2, 0.2 + 0.8**4], abs=0.03)


def test_bert4rec_masks_only_the_last_item_at_last_share() -> None:
    model: Any = a_model("bert4rec", steps=4, last_share=0.9, mask_share=0.99)
    windows = model.histories.random_windows(torch.arange(3, 63).repeat(100), LENGTH)
    alone = model._sample_masks(windows).view(-1, 4).sum(dim=1) == 1
    assert float(alone.float().mean()) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("name", ALL)
def test_positive_only_reads_positives(name: str) -> None:
    model = a_model(name, positive_only=True).eval()
    model.set_context(context_of(labels=np.zeros(USERS * 10, np.float32)))
    vectors = model.user_vectors(torch.tensor([63, 3, 4]))
    torch.testing.assert_close(vectors[1:], vectors[:1].expand(2, -1))
    assert float(model.loss(users_batch(EVERYBODY)).detach()) == 0


@pytest.mark.parametrize("name", ALL)
def test_tables_may_be_on_the_host_but_not_sharded(name: str) -> None:
    model = build(name, SMALL, SCHEMA, sparse=True, placement="host")
    model.set_context(context_of())
    model.loss(users_batch(EVERYBODY)).backward()
    with pytest.raises(ConfigError, match="placement is sharded"):
        build(name, SMALL, SCHEMA, sparse=True, placement="sharded")


@pytest.mark.parametrize("name", ALL)
def test_a_batch_of_different_lengths_has_the_states_of_each_alone(name: str) -> None:
    model: Any = a_model(name, max_seq_len=50).eval()
    counts = torch.tensor([30, 50, 1, 20, 25, 17, 3])  # several groups, most with padding
    layout = Jagged(counts)
    assert len(layout.groups) > 3
    vectors, times = torch.randn(int(counts.sum()), 32), torch.rand(int(counts.sum()), dtype=torch.float64).cumsum(0)
    together = model.states(vectors, layout, times)
    parts = zip(*(part.split(counts.tolist()) for part in (together, vectors, times)), strict=True)
    for states, alone, own in parts:
        torch.testing.assert_close(
            states, model.states(alone, Jagged(torch.tensor([len(alone)])), own), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(("name", "layer"), [*((name, None) for name in ALL), ("sasrec", "ligr"), ("bert4rec", "ligr")])
def test_states_at_some_places_are_those_of_all(name: str, layer: str | None) -> None:
    model: Any = a_model(name, max_seq_len=50, **({"layer": layer} if layer else {}))
    layout = Jagged(torch.tensor([30, 50, 1, 20, 25, 17, 3]))
    vectors, times = torch.randn(146, 32), torch.rand(146, dtype=torch.float64).cumsum(0)
    some = torch.tensor([0, 7, 29, 40, 41, 79, 100, 143, 145])  # none of three sequences
    for at in (some, layout.last):
        found = []
        for states in (model.states(vectors, layout, times, at), model.states(vectors, layout, times)[at]):
            model.zero_grad()
            states.square().sum().backward()
            found.append((states, [weight.grad for weight in model.network.parameters() if weight.grad is not None]))
        torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("steps", "length"), [(3, 10), (17, 17), (250, 200)])
def test_the_length_follows_from_the_first_histories_and_is_stored(steps: int, length: int) -> None:
    model = a_model("sasrec", steps=steps, max_seq_len=None)
    assert model.length == length
    model.set_context(context_of(12))  # as before a test
    assert model.length == length
    loaded = build("sasrec", {**SMALL, "max_seq_len": None}, SCHEMA)
    loaded.load_state_dict(model.state_dict())
    loaded.set_context(context_of(12))
    assert loaded.length == length
    torch.testing.assert_close(loaded.eval().user_vectors(EVERYBODY), model.eval().user_vectors(EVERYBODY))


@pytest.mark.parametrize(("steps", "dropout"), [(29, 0.5), (30, 0.3)])
@pytest.mark.parametrize("name", ALL)
def test_dropout_follows_from_the_mean_history(name: str, steps: int, dropout: float) -> None:
    model = a_model(name, steps=steps, dropout=None)
    assert {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)} == {dropout}
    assert model.chosen == {"num_negatives": 256, "dropout": dropout}
    asked = a_model(name, steps=steps, dropout=0.1)
    assert {module.p for module in asked.modules() if isinstance(module, torch.nn.Dropout)} == {0.1}


@pytest.mark.parametrize(("items", "negatives"), [(100, 256), (12_000, 3_000), (10**6, 4_096)])
def test_negatives_follow_from_the_catalog(items: int, negatives: int) -> None:
    assert SequenceOptions(num_negatives=None).negatives_of(items) == negatives
    assert SequenceOptions(num_negatives="all").negatives_of(items) == items


def test_hstu_reads_times() -> None:
    """The same items further apart make another vector; without `relative_time` they do not."""
    rows = context_of().interactions()
    later = replace(rows, times=rows.times * 1_000)
    for options, same in (({}, False), ({"relative_time": False}, True)):
        model: Any = a_model("hstu", **options).eval()
        for block in model.network.blocks:
            if block.by_time is not None:
                torch.nn.init.normal_(block.by_time)
        before = model.user_vectors(EVERYBODY)
        model.set_context(TrainingContext(lambda: later, dict))
        assert torch.allclose(model.user_vectors(EVERYBODY), before, atol=1e-6) == same


def test_heads_share_the_width() -> None:
    with pytest.raises(ConfigError, match="embedding_dim 32 is no multiple of num_heads 5"):
        build("sasrec", {**SMALL, "num_heads": 5}, SCHEMA)


@pytest.mark.parametrize(("number", "rate"), [(8, 8 / (ITEMS - 1)), ("all", 1.0)])
def test_gbce_is_calibrated_by_the_share_of_the_catalog_that_is_sampled(
    number: int | str, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target has 29 other items; β at t = 0.75 is 0.75 α + 0.25."""
    model = a_model("sasrec", loss="gbce", num_negatives=number, gbce_calibration=0.75)
    losses = []
    monkeypatch.setattr(
        model, "_catalog_loss", lambda targets, _, loss, __: losses.append(loss) or targets.predictions.sum()
    )
    model.loss(users_batch(EVERYBODY))
    assert losses[0].power == pytest.approx(0.75 * rate + 0.25)


def test_a_ligr_block_gates_its_attention_and_its_network_by_their_input() -> None:
    """Of one head: x + attention * σ(W x), then y + network * σ(V y)."""
    torch.manual_seed(0)
    dim, length = 4, 5
    block = LigrBlock(TransformerOptions(embedding_dim=dim, num_heads=1, layer="ligr"), causal=True).eval()
    inputs = torch.randn(length, dim)
    query, key, value = block.inward(block.before_attention(inputs)).chunk(3, dim=1)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    shares = (query @ key.T / dim**0.5).masked_fill(future, -torch.inf).softmax(dim=1)
    middle = inputs + block.outward(shares @ value) * block.attention_gate(inputs).sigmoid()
    expected = middle + block.dense(block.before_dense(middle)) * block.dense_gate(middle).sigmoid()
    layout = Jagged(torch.tensor([length]))
    torch.testing.assert_close(block(inputs, layout), expected)
    torch.testing.assert_close(block(inputs, layout, None, torch.tensor([1, 4])), expected[[1, 4]])


def test_the_length_from_data_holds_99_of_100_histories() -> None:
    """Two, one or none of 60 users have 28 items, the others 20: one of 60 may have more than the length; singles do not count."""
    lengths = []
    for longer, singles in ((2, 0), (1, 0), (0, 0), (2, 200)):
        sizes = np.repeat([28, 20, 1], [longer, 60 - longer, singles])
        user, step = np.repeat(np.arange(3, len(sizes) + 3), sizes), np.concatenate([np.arange(size) for size in sizes])
        rows = Interactions(user.astype(np.int32), item_at(user, step), np.ones(len(user), np.float32), times=step)
        model = build("sasrec", {**SMALL, "max_seq_len": None}, SCHEMA)
        assert isinstance(model, SequenceModel)
        model.set_context(TrainingContext(lambda rows=rows: rows, dict))
        lengths.append(model.length)
    assert lengths == [28, 20, 20, 28]
