"""Two stages: rows of the ranker without a leak, candidates before all other items, re-ranking."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from recsys_cli.config import from_values
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.configs.two_stage import Generator, HoldOut
from recsys_cli.models.model import TrainingContext
from recsys_cli.models.ranking.history import Window
from recsys_cli.models.two_stage import model as two_stage
from recsys_cli.models.two_stage.candidates import ItemStatistics
from recsys_cli.models.two_stage.rankers import Fold, LabeledCandidates, folds_of
from recsys_cli.training.trainer import train_part

USERS, ITEMS, GENRES = 40, 30, 5
SCHEMA = Schema(
    columns=(
        Column(name="user", role=Role.USER, kind=Kind.CATEGORICAL, dtype="int32", cardinality=USERS + 3, vocabulary="u"),
        Column(name="item", role=Role.ITEM, kind=Kind.CATEGORICAL, dtype="int32", cardinality=ITEMS + 3, vocabulary="i"),
        Column(
            name="genre", role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=GENRES + 3, vocabulary="g",
            table="item",
        ),
        Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
        Column(name="time", role=Role.TIMESTAMP, kind=Kind.NUMERIC, dtype="int64"),
    )
)  # fmt: skip
GENERATORS = [{"name": "ease", "k": 6}, {"name": "popularity", "k": 4}]
TREES = {"name": "lightgbm", "num_trees": 20, "min_data_in_leaf": 5}


def rows(seed: int = 0) -> Interactions:
    """Distinct pairs in order of time; users prefer items of their parity."""
    draw = np.random.default_rng(seed)
    users, items = (part.ravel() for part in np.meshgrid(np.arange(USERS), np.arange(ITEMS), indexing="ij"))
    chosen = draw.random(len(users)) < np.where((users + items) % 2 == 0, 0.5, 0.1)
    order = draw.permutation(np.flatnonzero(chosen))
    user_idx, item_idx = ((ids[order] + 3).astype(np.int32) for ids in (users, items))
    return Interactions(user_idx, item_idx, np.ones(len(order), np.float32), times=np.arange(len(order)))


def context_of(interactions: Interactions) -> TrainingContext:
    def join(ids):
        return {**ids, **({"genre": (3 + ids["item"] % GENRES).int()} if "item" in ids else {})}

    return TrainingContext(lambda: interactions, join)


def a_model(**options: object) -> two_stage.TwoStage:
    torch.manual_seed(0)
    options = {"candidates": GENERATORS, "ranker": TREES, "holdout": {"rounds": 1}, **options}
    model = build("two-stage", options, SCHEMA)
    assert isinstance(model, two_stage.TwoStage)
    return model


def fitted(**options: object) -> two_stage.TwoStage:
    model, context = a_model(**options), context_of(rows())
    model.fit(context)
    model.set_context(context)
    return model.eval()


@pytest.mark.parametrize("method", ["latest", "last", "random"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_holdouts_are_disjoint_and_targets_are_not_earlier(method: str, rounds: int) -> None:
    everything = rows()
    folds = list(folds_of(everything, HoldOut(method=method), rounds=rounds, seed=1))
    assert len(folds) == rounds
    for fold in folds:
        fit, targets = (set(zip(part.user_idx, part.item_idx, strict=True)) for part in (fold.fit, fold.targets))
        assert not fit & targets
        assert fit | targets <= set(zip(everything.user_idx, everything.item_idx, strict=True))
        if method == "latest":
            assert fold.fit.times.max() < fold.targets.times.min()
        if method == "last":
            for user in np.unique(fold.targets.user_idx):
                (target,) = fold.targets.times[fold.targets.user_idx == user]
                assert (fold.fit.times[fold.fit.user_idx == user] < target).all()


@pytest.mark.parametrize(
    ("split", "expected"),
    [("random", "random"), ("temporal", "latest"), ("leave-last-out", "last"), ("session", "latest"), ("user", "auto")],
)
def test_the_default_holdout_resembles_the_split(split: str, expected: str) -> None:
    values = {
        "dataset": {"name": "movielens-latest-small"}, "split": {"method": split}, "model": {"name": "two-stage"},
        "features": {"user": "userId", "item": "movieId", "label": "rating", "timestamp": "timestamp",
            "ops": [{"op": "Categorify", "columns": ["userId", "movieId"]}]},
    }  # fmt: skip
    config = from_values(values)
    assert config.model.options["holdout"]["method"] == expected
    assert from_values(config.model_dump(mode="json")) == config
    chosen = from_values(values, ["model.holdout.method=random"])
    assert chosen.model.options["holdout"]["method"] == "random"


def exchanged(rows: Interactions) -> Interactions:
    """The same rows with other items in the last 80."""
    items = rows.item_idx.copy()
    items[-80:] = 3 + (items[-80:] - 3 + 7) % ITEMS
    return replace(rows, item_idx=items)


def hold_out_last(monkeypatch: pytest.MonkeyPatch, *, leak: bool) -> None:
    """Hold out the last 80 rows, with or without a planted leak, and keep all candidates of a list."""

    def fold_of(interactions, options, *, rounds, seed):
        del options, rounds, seed
        last = np.arange(len(interactions)) >= len(interactions) - 80
        fit = interactions if leak else interactions.chosen(~last)
        yield Fold(fit, interactions.chosen(last))

    monkeypatch.setattr(two_stage, "folds_of", fold_of)
    monkeypatch.setattr(two_stage.TwoStage, "_kept", lambda _, row, *others: torch.ones_like(row, dtype=torch.bool))


def test_without_a_target_among_the_candidates_the_order_is_rank_fusion() -> None:
    """The last item of each user is in no other row, so no generator has it as a candidate."""
    users, items = np.array([3, 4, 3, 4], np.int32), np.array([3, 3, 4, 5], np.int32)
    context = context_of(Interactions(users, items, np.ones(4, np.float32), times=np.arange(4)))
    model = a_model(holdout={"method": "last", "rounds": 1})
    assert model.training_rows(context) is None
    model.fit(context)
    model.set_context(context)
    assert torch.isfinite(model.eval().scores(torch.tensor([3, 4]), torch.tensor([3, 4, 5]))).all()


@pytest.mark.parametrize("leak", [False, True])
def test_features_of_the_ranker_depend_on_its_targets_only_with_a_leak(
    monkeypatch: pytest.MonkeyPatch, *, leak: bool
) -> None:
    hold_out_last(monkeypatch, leak=leak)
    first, second = (a_model().training_rows(context_of(part)) for part in (rows(), exchanged(rows())))
    assert first is not None
    assert second is not None
    equal = torch.equal(first.items, second.items) and torch.equal(first.features, second.features)
    assert equal != leak
    if equal:
        assert not torch.equal(first.labels, second.labels)


@pytest.mark.parametrize("leak", [False, True])
@pytest.mark.parametrize("ranker", [{"name": "din"}, {"name": "bst"}, {"name": "fm", "history": {}}])
def test_histories_of_the_ranker_depend_on_its_targets_only_with_a_leak(
    monkeypatch: pytest.MonkeyPatch, ranker: dict[str, object], *, leak: bool
) -> None:
    """The windows of the rows that the trainer gets."""
    hold_out_last(monkeypatch, leak=leak)
    windows: list[Window] = []

    def train(model, config, context, schema):
        del config, schema
        model.set_context(context)
        (batch,) = context.batches()
        windows.append(model.history.window(batch, training=True))

    for part in (rows(), exchanged(rows())):
        a_model(ranker=ranker).fit(replace(context_of(part), train=train))
    first, second = windows
    assert torch.equal(first.items, second.items) != leak
    assert first.mask.any(1).all()


def test_more_hold_outs_without_gradient_training() -> None:
    assert a_model(holdout={}).num_rounds == 4
    assert a_model(holdout={"rounds": 2}).num_rounds == 2
    assert a_model(candidates=[{"name": "ease"}, {"name": "mf"}], holdout={}).num_rounds == 1


def test_each_round_has_the_histories_of_its_own_hold_out() -> None:
    model, everything = a_model(holdout={"method": "last", "rounds": 3}), rows()
    table = model.training_rows(context_of(everything))
    assert table is not None
    assert len(table.group.unique()) > USERS
    for number, fold in enumerate(folds_of(everything, model.config.holdout, rounds=model.num_rounds, seed=0)):
        for user in np.unique(fold.targets.user_idx):
            own = fold.fit.item_idx[fold.fit.user_idx == user]
            target = fold.targets.item_idx[fold.targets.user_idx == user]
            group = 3 + number * (USERS + 3) + int(np.searchsorted(np.unique(fold.targets.user_idx), user))
            history = table.histories.item_idx[table.histories.user_idx == group]
            assert history.tolist() == own.tolist()
            assert not set(history.tolist()) & set(target.tolist())


def test_rows_of_the_ranker_are_candidates_with_targets_as_positives() -> None:
    model, everything = a_model(negatives=3), rows()
    table = model.training_rows(context_of(everything))
    assert isinstance(table, LabeledCandidates)
    positives = torch.zeros(int(table.group.max()) + 1).index_add_(0, table.group, table.labels)
    sizes = torch.bincount(table.group)
    assert (positives[table.group] >= 1).all()
    assert (sizes - positives <= 3).all()
    (fold,) = folds_of(everything, model.config.holdout, rounds=model.num_rounds, seed=model._seed)
    taken = set(fold.targets.item_idx.tolist())
    assert {item for item, label in zip(table.items.tolist(), table.labels.tolist(), strict=True) if label} <= taken


def test_candidates_come_before_all_other_items_and_seen_items_are_none() -> None:
    model = fitted()
    users, items = torch.arange(3, 13), torch.arange(3, ITEMS + 3)
    scores = model.scores(users, items)
    seen = rows()
    assert model._ready is not None
    for (span, candidates), _ in zip(model._ready.blocks(users), [0], strict=True):
        assert span == slice(0, 10)
        member = torch.zeros_like(scores, dtype=torch.bool)
        member[candidates.row, model._ready.catalog[candidates.column] - 3] = True
        for row, user in enumerate(users.tolist()):
            assert scores[row][member[row]].min() > scores[row][~member[row]].max()
            assert not member[row, seen.item_idx[seen.user_idx == user] - 3].any()


def test_candidates_of_equal_scores_are_the_first_items_as_in_rankings() -> None:
    """Each item has two users, so popularity ties everywhere."""
    items = np.repeat(np.arange(3, ITEMS + 3, dtype=np.int32), 2)
    users = np.tile(np.arange(3, USERS + 3, dtype=np.int32), 2)[: len(items)]
    tied = Interactions(users, items, np.ones(len(items), np.float32), times=np.arange(len(items)))
    model = a_model(candidates=[{"name": "popularity", "k": 4}], ranker=None)
    model.fit(context_of(tied))
    model.set_context(context_of(tied))
    assert model._ready is not None
    found = model._ready.of(torch.tensor([3, 20, 42]))
    for row, user in enumerate((3, 20, 42)):
        free = [item for item in range(3, ITEMS + 3) if item not in items[users == user]]
        assert (model._ready.catalog[found.column[found.row == row]]).tolist() == free[:4]


def test_unseen_items_of_a_users_taste_come_first() -> None:
    model, items = fitted(), torch.arange(3, ITEMS + 3)
    users = torch.arange(3, 43)
    best = items[model.scores(users, items).topk(3, dim=1).indices]
    assert ((best + users.unsqueeze(1)) % 2 == 0).float().mean() > 0.8


def liked_and_disliked() -> Interactions:
    """200 users, one after another, with a random half of the items each; nearly all like the items of even ids alone."""
    draw = np.random.default_rng(0)
    items = np.concatenate([draw.permutation(ITEMS)[: ITEMS // 2] for _ in range(200)])
    labels = draw.random(len(items)) < np.where(items % 2 == 1, 0.9, 0.1)
    users, encoded = np.arange(len(items)) // (ITEMS // 2), (items + 3).astype(np.int32)
    return Interactions((users % USERS + 3).astype(np.int32), encoded, labels.astype(np.float32), times=users)


def test_liked_items_come_first_for_users_without_history() -> None:
    rows = liked_and_disliked()
    model = a_model(candidates=[{"name": "popularity", "k": ITEMS}], holdout={"rounds": 4})
    model.fit(context_of(rows))
    model.eval().set_context(context_of(rows.chosen(np.arange(0))))
    items = torch.arange(3, ITEMS + 3)
    best = items[model.scores(torch.tensor([3]), items)[0].topk(ITEMS // 2).indices]
    assert (best % 2 == 0).all()


def test_ranking_does_not_change_with_the_other_users_of_a_call() -> None:
    model, items = fitted(), torch.arange(3, ITEMS + 3)
    together = model.scores(torch.arange(3, 43), items)
    alone = torch.cat([model.scores(torch.tensor([user]), items) for user in range(3, 43)])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


def test_at_most_limits_the_values_of_a_feature() -> None:
    rule = {"name": "at-most", "feature": "genre", "number": 1, "top": 4}
    items = torch.arange(3, ITEMS + 3)
    plain, limited = (fitted(rerank=rerank).scores(torch.arange(3, 43), items) for rerank in ([], [rule]))
    genres = (3 + items % GENRES)[limited.topk(3, dim=1).indices]
    assert all(len(set(row.tolist())) == 3 for row in genres)
    assert torch.equal(limited.argmax(1), plain.argmax(1))
    assert any(len(set(row.tolist())) < 3 for row in (3 + items % GENRES)[plain.topk(3, dim=1).indices])


@pytest.mark.parametrize("by", [None, "ease"])
def test_mmr_without_diversity_keeps_the_order(by: str | None) -> None:
    items, users = torch.arange(3, ITEMS + 3), torch.arange(3, 43)
    rerankers = ([], *([{"name": "mmr", "diversity": weight, "by": by}] for weight in (0.0, 0.9)))
    plain, same, diverse = (
        fitted(rerank=rerank).scores(users, items).argsort(dim=1, descending=True, stable=True) for rerank in rerankers
    )
    assert torch.equal(plain, same)
    assert not torch.equal(plain, diverse)


PAIRS, EARLY, LATE = 10, 50, 200


def world_of_pairs() -> tuple[Interactions, np.ndarray]:
    """Histories of a key and three other items, then the key's partner; the last users have none yet. Return also the partners.

    Items: keys 3 to 12, partners 13 to 22, others 23 to 32. Users come in order of time: 50 buy early, 200 in the hold-out.
    """
    draw = np.random.default_rng(0)
    keys = np.tile(np.arange(PAIRS), 30)
    others = np.stack([draw.permutation(PAIRS)[:3] for _ in keys]) + 2 * PAIRS
    histories = np.take_along_axis(np.column_stack([keys, others]), draw.random((len(keys), 4)).argsort(1), axis=1)
    buyers = np.arange(EARLY + LATE)
    users = np.concatenate([np.repeat(np.arange(len(keys)), 4), buyers])
    items = np.concatenate([histories.ravel(), keys[buyers] + PAIRS])
    rows = Interactions(
        (users + 3).astype(np.int32), (items + 3).astype(np.int32), np.ones(len(users), np.float32),
        times=np.arange(len(users)),
    )  # fmt: skip
    return rows, keys + PAIRS + 3


def share_of_partners_first(ranker: dict[str, object]) -> float:
    """Train on the buyers of the world, and rank for the others."""
    world, partners = world_of_pairs()
    users = np.arange(EARLY + LATE, len(partners))
    schema = Schema(
        columns=tuple(
            column.model_copy(update={"cardinality": len(partners) + 3}) if column.name == "user" else column
            for column in SCHEMA.columns
            if column.name != "genre"
        )
    )
    torch.manual_seed(0)
    options = {
        "candidates": [{"name": "popularity", "k": 3 * PAIRS}], "holdout": {"share": LATE / len(world)},
        "ranker": {**ranker, "train": {"epochs": 15, "batch_size": 256, "learning_rate": 0.005}},
    }  # fmt: skip
    model = build("two-stage", options, schema)
    context = TrainingContext(lambda: world, dict, train=train_part)
    model.fit(context)
    model.eval().set_context(context)
    items = torch.arange(3, 3 * PAIRS + 3)
    with torch.inference_mode():
        best = items[model.scores(torch.from_numpy(users + 3), items).argmax(1)]
    return float((best.numpy() == partners[users]).mean())


@pytest.mark.parametrize(("ranker", "least", "most"), [("din", 0.8, 1.0), ("dcn-v2", 0.0, 0.4)])
def test_attention_to_the_history_finds_an_item_that_depends_on_one_of_it(
    ranker: str, least: float, most: float
) -> None:
    """Without the history, each of the ten partners is as likely."""
    small = {"hidden_dims": [32], "dropout": 0.0, "embedding_dropout": 0.0, "embedding_dim": 8}
    assert least <= share_of_partners_first({"name": ranker, **small}) <= most


def test_rank_fusion_needs_no_training() -> None:
    model = fitted(ranker=None)
    assert model.ranker is None
    assert torch.isfinite(model.scores(torch.arange(3, 8), torch.arange(3, ITEMS + 3))).all()


def test_parts_train_for_few_epochs_unless_the_config_has_more() -> None:
    assert [Generator(name="sasrec", train=train).training.epochs for train in ({}, {"epochs": 50})] == [20, 50]
    assert Generator(name="sasrec").training.early_stopping is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": [{"name": "fm"}]}, "scores pairs"),
        ({"candidates": [{"name": "eas"}]}, "did you mean ease"),
        ({"candidates": [{"name": "ease", "regularisation": 3}]}, "regularisation"),
        ({"ranker": {"name": "ease"}}, "no ranking model"),
        ({"ranker": {"name": "din", "history": {"column": "items"}}}, "a candidate has no interaction"),
        ({"ranker": {"name": "fm", "collaborative": {}}}, "needs rows of interactions"),
        ({"rerank": [{"name": "mmr", "by": "sasrec"}]}, "no generator"),
    ],
)
def test_parts_that_do_not_fit_are_errors(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        a_model(**options)


OLD, NEW, BLOCKS, OTHERS = 100, 4, 10, 20
"""Old users, new users of a block of time, blocks, and the items that only old users buy."""


def world_of_newcomers() -> Interactions:
    """In each block of time each old user buys one of 20 items, and each new user two of the 10 others."""
    draw = np.random.default_rng(0)
    rows = []
    for user in range(OLD):
        rows += list(zip(range(BLOCKS), [user] * BLOCKS, draw.permutation(OTHERS), strict=False))
    for user in range(NEW * BLOCKS):
        rows += [(user // NEW, OLD + user, OTHERS + item) for item in draw.permutation(ITEMS - OTHERS)[:2]]
    blocks, users, items = np.array(sorted(rows)).T
    return Interactions(
        (users + 3).astype(np.int32), (items + 3).astype(np.int32), np.ones(len(users), np.float32), times=blocks
    )


def test_users_without_history_get_what_such_users_bought() -> None:
    """In each hold-out they buy the least popular items, which no generator of popularity has first."""
    world = world_of_newcomers()
    size = OLD + NEW * BLOCKS + 4
    columns = (
        each.model_copy(update={"cardinality": size}) if each.name == "user" else each for each in SCHEMA.columns
    )
    torch.manual_seed(0)
    options = {
        "candidates": [{"name": "popularity", "k": ITEMS}], "ranker": {**TREES, "num_trees": 100},
        "holdout": {"share": (OLD + 2 * NEW) / len(world), "rounds": 4},
    }  # fmt: skip
    model = build("two-stage", options, Schema(columns=tuple(columns)))
    assert isinstance(model, two_stage.TwoStage)
    model.fit(context_of(world))
    model.eval().set_context(context_of(world))
    items, newcomer = torch.arange(3, ITEMS + 3), torch.tensor([size - 1])
    by_popularity = model.generators[0].scores(newcomer, items)
    expected = set(range(OTHERS + 3, ITEMS + 3))
    best, popular = (
        set(items[one[0].topk(10).indices].tolist()) for one in (model.scores(newcomer, items), by_popularity)
    )
    assert best == expected
    assert not popular & expected


@pytest.mark.parametrize("ticks", [1, 1_000])
def test_statistics_of_items_know_the_latest_tenth_of_the_rows_and_days(ticks: int) -> None:
    """A row a day for 20 days: item 3 on the first 10, item 4 on the others; item 5 never. The last row is negative."""
    items, labels = np.repeat(np.array([3, 4], np.int32), 10), np.ones(20, np.float32)
    labels[-1] = 0
    times = np.arange(20) * 86_400 * ticks
    statistics = ItemStatistics(6, ticks=ticks)
    statistics.fit(Interactions(np.full(20, 3, np.int32), items, labels, times=times))
    found = {name: values[3:].tolist() for name, values in zip(statistics.names, statistics.values.T, strict=True)}
    log = np.log1p
    expected = {
        "popularity": [log(10), log(10), 0], "recent popularity": [0, log(2), 0],
        "trend": [-log(1), log(2) - log(1), 0], "days since the last row": [log(10), 0, log(19)],
        "days since the first row": [log(19), log(9), 0], "positives": [log(10), log(9), 0],
        "recent positives": [0, log(1), 0], "share of positives": [19.5 / 20, 18.5 / 20, 9.5 / 10],
    }  # fmt: skip
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name] == pytest.approx(values), name
