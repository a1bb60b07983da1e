"""The whole measurement on the checkerboard, whose right answer is known: users like the items of their own half."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError, DataError, TrainingError
from recsys_cli.evaluation import Measurements
from recsys_cli.evaluation.measure import ComputeSettings, choose_split
from recsys_cli.evaluation.measure import measure as measure_and_keep
from recsys_cli.events import Progress
from recsys_cli.features.schema import Schema
from recsys_cli.models.model import Model
from recsys_cli.workspace import PreparedData


class Half(Model):
    """Knows the checkerboard, and looks at genres to do it, as a model would."""

    probabilistic = True

    def score(self, batch: Batch) -> Tensor:
        user, genres = batch.features["userId"], batch.features["genres"]
        is_odd = genres.offsets.diff() == 1  # odd items have one genre, even ones two
        return torch.where(is_odd == (user % 2 == 1), 3.0, -3.0)


class Noise(Model):
    """Gives each pair its own meaningless score."""

    def score(self, batch: Batch) -> Tensor:
        user, item = batch.features["userId"].double(), batch.features["movieId"].double()
        return torch.sin(user * 12.9898 + item * 78.233).mul(43758.5453).frac().float()


class Dense(Model):
    """Has a dense layer, whose last digits may depend on the size of the batch."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.users, self.items = (torch.randn(100, 24, generator=generator) for _ in range(2))
        self.weight = torch.randn(48, 1, generator=generator)

    def score(self, batch: Batch) -> Tensor:
        user, item = self.users[batch.features["userId"].long()], self.items[batch.features["movieId"].long()]
        return (torch.cat([user, item], dim=1).tanh() @ self.weight).squeeze(1)


CONFIG = EvaluateConfig(k=(1, 5), bootstrap=50, batch_size=100)


def measure(*args, **kwargs) -> Measurements:
    return measure_and_keep(*args, **kwargs)[0]


def _values(measured: Measurements) -> dict[str, float | None]:
    sections = {"pointwise": measured.pointwise, "ranking": measured.ranking}
    return {
        f"{section}/{system}/{metric}/{part}": value
        for section, systems in sections.items()
        for system, metrics in systems.items()
        for metric, estimate in metrics.items()
        for part, value in estimate.model_dump().items()
    }


def test_measure_finds_the_model_that_knows(make_prepared) -> None:
    measured = measure(Half(), make_prepared(), CONFIG)

    model, constant = measured.pointwise["model"], measured.pointwise["constant"]
    assert (model["auc"].value, model["accuracy"].value) == (1, 1)
    assert model["log_loss"].value == pytest.approx(np.log1p(np.exp(-3)))
    assert constant["auc"].value == 0.5
    assert measured.split == "valid"
    ranking, popularity = measured.ranking["model"], measured.ranking["popularity"]
    assert ranking["ndcg@5"].low > popularity["ndcg@5"].high
    assert all(e.low <= e.value <= e.high for system in measured.ranking.values() for e in system.values())


def test_measure_of_noise_is_no_better_than_chance(make_prepared) -> None:
    measured = measure(Noise(), make_prepared(rows=4_000), CONFIG)

    auc = measured.pointwise["model"]["auc"]
    assert auc.low < 0.5 < auc.high


@pytest.mark.parametrize("model", [Half(), Noise(), Dense()], ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("batch_size", [1_000_000, 7])
def test_measure_does_not_depend_on_the_batch_size(make_prepared, model: nn.Module, batch_size: int) -> None:
    data = make_prepared(users=90, items=60, rows=1_600)

    one, other = (measure(model, data, CONFIG.model_copy(update={"batch_size": b})) for b in (100, batch_size))

    for name, estimates in (one.pointwise | one.ranking).items():
        for metric, estimate in estimates.items():
            found = (other.pointwise | other.ranking)[name][metric]
            assert found.value == pytest.approx(estimate.value, abs=1e-6)
            # Rows of one pair may get scores that differ in the last digit and are no tie any more: some draws differ.
            width = estimate.high - estimate.low
            assert (found.low, found.high) == pytest.approx((estimate.low, estimate.high), abs=0.1 * width + 1e-6)


def test_measure_ignores_how_rows_are_dealt_to_files(make_prepared) -> None:
    one, many = (measure(Noise(), make_prepared(shards=shards), CONFIG) for shards in (1, 5))

    assert _values(one) == _values(many)


def test_measure_of_a_sample_says_so_everywhere(make_prepared) -> None:
    measured = measure(Half(), make_prepared(), CONFIG.model_copy(update={"max_ranking_users": 7}))

    assert measured.counts.users_ranked == 7
    assert measured.counts.is_sample
    assert "a sample of 7 of 22 users" in measured.protocol.users


def test_evaluation_on_test_filters_items_seen_in_valid(make_prepared) -> None:
    data = make_prepared()
    _add_split(data, "test", pq.read_table(data.shards("valid")[0]))

    measured = measure(Half(), data, CONFIG.model_copy(update={"relevance": "all"}))

    assert measured.split == "test"
    assert measured.counts.users_ranked == 0  # the whole test split is a part of valid, so nothing is left to find
    assert "train or valid" in measured.protocol.seen
    assert measured.ranking == {}
    assert "nothing" not in measured.notes[0]
    assert "No ranking" in measured.notes[0]
    assert measured.pointwise["model"]["auc"].value == 1


@pytest.mark.parametrize(("num_repeated", "num_new", "share"), [(3, 5, "37.5 %"), (1, 19, None), (1, 18, "5.3 %")])
def test_repeated_pairs_are_counted_and_noted(
    make_prepared, num_repeated: int, num_new: int, share: str | None
) -> None:
    data = make_prepared(rows=400)
    earlier = {
        pair
        for split in ("train", "valid")
        for shard in data.shards(split)
        for pair in zip(*pq.read_table(shard, columns=["userId", "movieId"]).to_pydict().values(), strict=True)
    }
    liked = [(user, item) for user in range(3, 43) for item in range(3, 33) if (user + item) % 2 == 0]
    repeated = [pair for pair in liked if pair in earlier][:num_repeated]
    pairs = repeated + [pair for pair in liked if pair not in earlier][:num_new]
    disliked = next((user, item) for user, item in earlier if (user + item) % 2)
    user, item = zip(*pairs, pairs[0], pairs[-1], disliked, strict=True)  # a pair counts once, an irrelevant one never
    label = [*[1] * (len(user) - 1), 0]
    rows = pa.table({"userId": user, "movieId": item, "label": label, "timestamp": [0] * len(user)})
    _add_split(data, "test", rows.cast(pq.read_schema(data.shards("train")[0])))

    measured = measure(Half(), data, CONFIG)

    total = num_repeated + num_new
    assert (measured.counts.pairs, measured.counts.pairs_repeated) == (total, num_repeated)
    assert measured.counts.relevant == num_new
    note = (
        f"{num_repeated} of the {total} relevant (user, item) pairs of test ({share}) repeat an earlier pair of the user: "
        "they are not ranked; evaluate.repeats=true ranks them."
    )
    assert (note in measured.notes) == (share is not None)
    assert any("repeat an earlier pair" in one for one in measured.notes) == (share is not None)
    again = measure(Half(), data, CONFIG.model_copy(update={"repeats": True}))
    assert (again.counts.relevant, again.counts.pairs_repeated) == (total, num_repeated)
    assert not any("repeat an earlier pair" in one for one in again.notes)


def test_given_rows_of_items_without_a_train_row_are_counted_and_noted(make_prepared) -> None:
    """Of user 5's rows item 2 is unknown: two irrelevant ones are in no ranking, a relevant one is a miss; user 6 is not ranked."""
    data = make_prepared()
    user, item, label = [5, 5, 5, 5, 5, 6], [5, 4, 2, 2, 2, 2], [1, 0, 0, 0, 1, 0]
    rows = pa.table({"userId": user, "movieId": item, "label": label, "timestamp": [0] * 6})
    _add_split(data, "test", rows.cast(pq.read_schema(data.shards("train")[0])))

    counts = {}
    for candidates in ("given", "all"):
        measured = measure(Half(), data, CONFIG.model_copy(update={"candidates": candidates}))
        counts[candidates] = measured.counts.given_left_out
        noted = [
            note
            for note in measured.notes
            if note.startswith("2 rows of test that are not relevant have items outside")
        ]
        assert len(noted) == (candidates == "given")
    assert counts == {"given": 2, "all": 0}


def test_measure_counts_unknown_users_and_items(make_prepared) -> None:
    data = make_prepared()
    rows = {"userId": [2, 3, 3, 4], "movieId": [4, 2, 2, 2], "label": [1, 1, 1, 0], "timestamp": [0, 0, 0, 0]}
    schema = pq.read_schema(data.shards("train")[0])
    _add_split(data, "test", pa.table(rows).cast(schema))

    counts = measure(Half(), data, CONFIG).counts

    assert (counts.rows, counts.positive, counts.unknown_user_rows, counts.unknown_item_rows) == (4, 3, 1, 3)
    assert (counts.users, counts.users_ranked, counts.users_without_relevant) == (2, 1, 1)
    assert (counts.relevant, counts.relevant_unreachable) == (2, 2)


def test_measure_works_on_the_flat_layout(make_prepared) -> None:
    star, flat = make_prepared(), make_prepared(seed=1)
    genres = pq.read_table(flat.table("movieId"))["genres"]
    for split in ("train", "valid"):
        for path in flat.shards(split):
            rows = pq.read_table(path)
            pq.write_table(rows.append_column("genres", genres.take(rows["movieId"])), path)
    columns = tuple(column.model_copy(update={"table": None}) for column in flat.schema.columns)
    Schema(columns=columns).write(flat.folder / "schema.json")

    measured = measure(Half(), flat, CONFIG)

    assert measured.ranking["model"].keys() == measure(Half(), star, CONFIG).ranking["model"].keys()
    assert measured.pointwise["model"]["auc"].value == 1


def test_note_gives_the_reason_for_a_missing_ranking(make_prepared) -> None:
    data = make_prepared()
    for split in ("train", "valid"):
        for path in data.shards(split):
            rows = pq.read_table(path)
            pq.write_table(rows.append_column("hour", pa.array(np.zeros(len(rows), np.float32))), path)
    hour = {"name": "hour", "role": "feature", "kind": "numeric", "dtype": "float32"}
    schema = json.loads((data.folder / "schema.json").read_text())
    (data.folder / "schema.json").write_text(json.dumps({"columns": [*schema["columns"], hour]}))

    measured = measure(Half(), data, CONFIG)

    assert measured.ranking == {}
    assert "hour" in measured.notes[0]


@pytest.mark.gpu
def test_measure_on_a_gpu_equals_the_cpu(make_prepared) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    data = make_prepared()

    there = measure(Half().cuda(), data, CONFIG, compute=ComputeSettings(device="cuda"))

    assert _values(there) == pytest.approx(_values(measure(Half(), data, CONFIG)), abs=1e-6)


@pytest.mark.parametrize("k", [[], [0], [10, -1]])
def test_cut_offs_are_at_least_one(k: list[int]) -> None:
    with pytest.raises(ValueError, match="k"):
        EvaluateConfig(k=k)


def test_measure_tells_how_far_it_is(make_prepared) -> None:
    events: list[Progress] = []

    measure(Half(), make_prepared(), CONFIG, compute=ComputeSettings(emit=events.append))

    last = {event.task: event for event in events}
    assert set(last) == {"score valid", "rank by model", "rank by popularity", "rank by ease"}
    assert all(event.done == event.total for event in last.values())
    first = {event.task: event.done for event in reversed(events)}
    assert first["rank by model"] == 0


def test_measure_refuses_scores_that_are_no_numbers(make_prepared) -> None:
    class Broken(Model):
        def score(self, batch: Batch) -> Tensor:
            return torch.full((batch.num_rows,), float("nan"))

    with pytest.raises(TrainingError, match="not finite"):
        measure(Broken(), make_prepared(), CONFIG)


@pytest.mark.parametrize("side", ["user", "item"])
@pytest.mark.parametrize("number", [float("nan"), float("-inf"), 1e30])
def test_vectors_with_overflowing_products_are_an_error(make_prepared, side: str, number: float) -> None:
    class Broken(Half):
        scoring = "dot_product"

        def user_vectors(self, users: Tensor) -> Tensor:
            return torch.full((len(users), 2), number if side == "user" else 1.0)

        def item_vectors(self, items: Tensor) -> Tensor:
            return torch.full((len(items), 2), number if side == "item" else 1.0)

    with pytest.raises(TrainingError, match="not finite"):
        measure(Broken(), make_prepared(), CONFIG)


def test_measure_refuses_labels_that_are_not_0_or_1(make_prepared) -> None:
    data = make_prepared(shards=1)
    path = data.shards("valid")[0]
    rows = pq.read_table(path)
    stars = pa.array(np.full(len(rows), 4, np.int8))
    pq.write_table(rows.set_column(rows.column_names.index("label"), "label", stars), path)

    with pytest.raises(DataError, match="label 'label' has the value 4"):
        measure(Half(), data, CONFIG)


def test_choose_split_takes_test_where_there_is_one_and_refuses_an_empty_one(make_prepared) -> None:
    data = make_prepared()
    with pytest.raises(ConfigError, match="none of test to evaluate on"):
        choose_split(data, EvaluateConfig(split="test"))
    assert choose_split(data, EvaluateConfig()) == "valid"

    _add_split(data, "test", pq.read_table(data.shards("valid")[0]))

    assert choose_split(data, EvaluateConfig()) == "test"
    assert choose_split(data, EvaluateConfig(split="valid")) == "valid"


def _add_split(data: PreparedData, split: str, rows: pa.Table) -> None:
    (data.folder / split).mkdir()
    pq.write_table(rows, data.folder / split / "00000.parquet")
    manifest = data.manifest
    manifest["rows"][split] = rows.num_rows
    (data.folder / "manifest.json").write_text(json.dumps(manifest))
