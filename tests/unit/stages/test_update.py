"""`recsys update`: days of a shop with a weekly rhythm, new users and items; bad days; ids; the gate; restarts."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from recsys_cli.cli import app
from recsys_cli.config import load
from recsys_cli.errors import DataError
from recsys_cli.etl.calendar import KEPT, Day, added
from recsys_cli.etl.days import NewInteractions, new_interactions
from recsys_cli.evaluation.loaded_run import config_of
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.features.schema import Role
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.query import Query
from recsys_cli.stages.daily import State
from recsys_cli.stages.day_checks import Problem, problems
from recsys_cli.stages.forget import forget
from recsys_cli.stages.gate import judge, outcomes
from recsys_cli.stages.publish import Publication
from recsys_cli.stages.update import Update, update
from recsys_cli.stages.watch import watch
from recsys_cli.workspace import Workspace
from tests.event_configs import config_text

FIRST_DAY = 19_680  # a Sunday in November 2023
HEAD = "user,item,rating,timestamp\n"
KILLED = """
import os, signal, sys
from pathlib import Path
from recsys_cli.config import load
from recsys_cli.stages.update import _Updating, update
from recsys_cli.workspace import Workspace
setattr(_Updating, sys.argv[1], lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
update(load(Path(sys.argv[2])), Workspace(sys.argv[3]), "shop")
"""
Rows = np.ndarray


def day_of_shop(number: int, *, seed: int = 0) -> Rows:
    """Return a day's (user, item, rating, time) in order of time: Wednesdays have 60 % of the rows; users and items come and go."""
    rng = np.random.default_rng([seed, number])
    mean = 400 * (0.6 if number % 7 == 3 else 1.0)
    rows = int(mean * np.exp(rng.normal(0, 0.08)))
    users = (rng.pareto(1.5, rows) * 40).astype(int) % (250 + 3 * number) + number
    items = (rng.pareto(1.0, rows) * 6).astype(int) % 60 * 5 + np.where(rng.random(rows) < 0.8, users % 5, 0)
    items = np.where(rng.random(rows) < 0.03, 1_000 + number, items)
    times = np.sort((FIRST_DAY + number) * 86_400 + rng.integers(0, 86_400, rows))
    return np.stack([users, items + 200, rng.integers(2, 6, rows), times], axis=1)


def write(path: Path, rows: Rows) -> None:
    path.write_text(HEAD + "".join(f"{u},{i},{r},{t}\n" for u, i, r, t in rows))


class Shop:
    """A folder of daily files, a config and a workspace."""

    def __init__(self, folder: Path, *, days: int = 21, model: str = "ease") -> None:
        self.log, self.config = folder / "log", folder / "shop.yaml"
        self.log.mkdir()
        more = f"model: {{name: {model}}}\ntrain: {{device: cpu, trackers: []}}\n"
        self.config.write_text(config_text(f"{self.log}/*.csv", label="rating > 2", time="timestamp", more=more))
        self.workspace = Workspace(folder / "workspace")
        self.number = 0
        for _ in range(days):
            self.next()

    def next(self, change: Callable[[Rows], Rows] | None = None) -> Path:
        """Write the next day."""
        rows = day_of_shop(self.number)
        path = self.log / f"{self.number:04d}.csv"
        write(path, rows if change is None else change(rows))
        self.number += 1
        return path

    def update(self, **options: object) -> Update:
        return update(load(self.config), self.workspace, "shop", **options)

    @property
    def publication(self) -> Publication:
        return Publication(self.workspace.root / "published" / "shop")

    @property
    def state(self) -> State:
        return State.read(self.workspace.root / "daily" / "shop" / "state.json")


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """Facts of 90 days, read from one folder; and a function that checks a file as the next day."""
    shop = Shop(tmp_path_factory.mktemp("days"), days=90)
    config = load(shop.config)
    first = new_interactions(config, Path())
    assert [day.rows for day in first.days] == [len(day_of_shop(number)) for number in range(20, 90)]
    seen = np.concatenate([day_of_shop(number) for number in range(90)])
    known = {role: pa.array(np.unique(seen[:, at])) for at, role in enumerate(("user", "item"))}

    def check(path: Path) -> list[str]:
        options = {"after": first.last, "files": frozenset({str(path)}), "rows_before": first.total, "known": known}
        try:
            new = new_interactions(config, Path(), **options)
        except DataError:
            return ["reading"]
        found = problems(new, first.days, through=float(first.last or 0), now=2e9)
        return [one.check for one in found]

    return shop, check


def test_sixty_normal_days_with_a_weekly_rhythm_are_taken(days):
    shop, _ = days
    facts = new_interactions(load(shop.config), Path()).days
    for at in range(10, 70):
        day = facts[at]
        through = facts[at - 1].last
        one = NewInteractions((day,), day.rows, 0, day.last, 0)
        assert problems(one, facts[:at], through=through, now=2e9) == [], (at, day)


def _bot(rows: Rows) -> Rows:
    rows[::3, 0] = 7
    return rows


def _with(column: int, change: Callable[[Rows], Rows]) -> Callable[[Rows], Rows]:
    def changed(rows: Rows) -> Rows:
        rows[:, column] = change(rows[:, column])
        return rows

    return changed


BAD = {
    "half the rows": (lambda rows: rows[::2], "rows"),
    "doubled rows": (lambda rows: np.repeat(rows, 2, axis=0), "rows"),
    "swapped columns": (lambda rows: rows[:, [1, 0, 2, 3]], "unknown items"),
    "milliseconds": (_with(3, lambda times: times * 1_000), "reading"),
    "a constant label": (_with(2, lambda ratings: ratings * 0 + 5), "values of rating"),
    "a bot": (_bot, "one user"),
    "no rows": (lambda rows: rows[:0], "rows"),
    "ids in another spelling": (_with(0, lambda users: users + 5_000_000), "unknown users"),
    "yesterday again": (lambda _: day_of_shop(89), "late"),
    "a future date": (_with(3, lambda times: times + 400 * 86_400), "time"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_day_is_refused(days, name):
    shop, check = days
    change, expected = BAD[name]
    path = shop.log / f"{shop.number:04d}.csv"
    try:
        write(path, change(day_of_shop(shop.number)))
        assert expected in check(path)
        write(path, day_of_shop(shop.number))
        assert check(path) == []
    finally:
        path.unlink()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A shop after three updates."""
    made = Shop(tmp_path_factory.mktemp("shop"))
    for _ in range(3):
        assert made.update().verdict == "promoted"
        made.next()
    return made


def test_an_update_publishes_and_a_second_one_of_the_day_does_nothing(shop):
    before = shop.state
    found = shop.update()
    assert (found.verdict, found.version) == ("promoted", 4)
    assert found.gate is not None
    assert shop.publication.current.number == 4
    state = shop.state
    assert state.rows == sum(len(day_of_shop(number)) for number in range(shop.number))
    assert state.through > before.through
    assert shop.update().verdict == "nothing new"
    assert shop.state == state


def test_ids_keep_their_numbers_and_a_full_preparation_gives_the_same_rows(shop):
    state = shop.state
    older, newest = (shop.workspace.data(one["data"]) for one in (state.versions[0], state.versions[-1]))
    for name in ("user", "item"):
        before, after = (pq.read_table(data.vocabulary(name))["value"].to_pylist() for data in (older, newest))
        assert len(after) > len(before)
        assert after[: len(before)] == before
    rows = sum(len(day_of_shop(number)) for number in range(shop.number))
    assert newest.rows("train") + newest.rows("test") == rows
    held_out = [pq.read_table(path)["timestamp"].to_numpy().min() for path in newest.shards("test")]
    assert min(held_out) > max(one["through"] for one in state.versions[:-1])  # unseen by both models


def test_the_newest_rows_are_in_the_histories_of_the_version(shop):
    served = load_bundle(shop.publication.current.folder)
    before = np.concatenate([day_of_shop(number) for number in range(shop.number - 1)])
    seen, users = {(u, i) for u, i, *_ in before.tolist()}, set(before[:, 0].tolist())
    latest = day_of_shop(shop.number - 1)
    latest = latest[-len(latest) // 5 :].tolist()
    user, item = next((u, i) for u, i, *_ in latest if (u, i) not in seen and u in users and i in before[:, 1])
    items = {one.item.id for one in served.recommend([Query(user=user, k=1_000)])[0].items}
    assert items
    assert item not in items


def test_a_refused_day_serves_yesterday_and_is_taken_by_its_name(shop):
    before = shop.state
    shop.next(lambda rows: rows[::4])
    ended = CliRunner().invoke(app, ["-w", str(shop.workspace.root), "update", str(shop.config), "--json"])
    assert ended.exit_code == 7
    result = json.loads(ended.stdout)
    assert [one["check"] for one in result["problems"]] == ["rows"]
    assert "--accept rows" in result["next"]
    assert shop.update().verdict == "refused"  # a second time, at no cost
    assert (shop.state.rows, shop.state.versions) == (before.rows, before.versions)
    assert shop.update(accept=["rows"]).verdict == "promoted"


def test_a_corrected_file_is_named_and_taken_again_from_its_date(shop):
    state, said = shop.state, []
    path = shop.log / f"{shop.number - 2:04d}.csv"
    write(path, day_of_shop(shop.number - 2)[:-9])
    assert shop.update(emit=lambda event: said.append(getattr(event, "text", ""))).verdict == "nothing new"
    assert any(f"{path} changed" in text and "--from" in text for text in said)
    start = float((FIRST_DAY + shop.number - 2) * 86_400)
    path.write_text(HEAD)
    found = shop.update(since=start)
    assert [one.check for one in found.problems] == ["rows"]  # one day where two are usual
    assert shop.state.days == state.days
    write(path, day_of_shop(shop.number - 2)[:-9])
    path.rename(path.with_suffix(".gone"))
    (gone,) = shop.update().problems
    assert (gone.check, "is gone" in gone.text) == ("reading", True)
    path.with_suffix(".gone").rename(path)
    assert shop.update(since=start, accept=["gate"]).verdict == "promoted"


def test_losses_that_add_up_make_a_full_training_due(shop):
    state = shop.state
    state.drift = [[-0.02, 0.02]] * 5
    state.write(shop.workspace.root / "daily" / "shop" / "state.json")
    shop.next()
    found = shop.update(accept=["rows", "gate"])
    assert "full" in found.steps["train"]
    assert shop.state.drift == []


def test_a_continued_model_keeps_the_state_of_its_optimizer_and_has_no_second_warm_up(tmp_path):
    shop, sums = Shop(tmp_path, days=15, model="mf"), []
    options = [
        "train.epochs=2",
        "train.early_stopping=null",
        "train.schedule.name=cosine",
        "train.schedule.warmup_steps=9",
    ]
    for _ in range(2):
        made = update(load(shop.config, options), shop.workspace, "shop", accept=["gate"])
        tensors = load_file((run := shop.workspace.run(made.run)).checkpoint("last"))
        sums.append([tensors[f"optimizer.embeddings.tables.of_{name}.weight:sum"] for name in ("user", "item")])
        shop.next()
    assert made.steps["train"].startswith("continued")
    train = config_of(run).train
    assert (train.epochs, train.schedule.name, train.schedule.warmup_steps) == (4, "cosine", 0)
    for before, after in zip(*sums, strict=True):
        assert len(after) > len(before)
        assert (after[: len(before)] >= before).all()  # sums of Adagrad only grow


def test_an_update_after_a_forgotten_user_keeps_the_numbers_of_the_others(shop):
    before, published = shop.state, shop.publication
    user, key = int(day_of_shop(0)[0, 0]), published.current.key
    before.refused = {"problems": [{"check": "reading", "text": f"user '{user}'"}], "gate": None}
    before.write(shop.workspace.root / "daily" / "shop" / "state.json")
    forget({Role.USER: [str(user)]}, shop.workspace)
    assert shop.state.refused is None
    assert published.current.key == key  # with the newest rows, as before
    shop.next()
    assert shop.update(accept=["rows", "gate"]).verdict == "promoted"
    old, new = (shop.workspace.data(state.ids).vocabulary("user") for state in (before, shop.state))
    old, new = (pq.read_table(path)["value"].to_pylist() for path in (old, new))
    assert None in old
    assert [one for one in old if one is not None] == [one for one in new[: len(old)] if one is not None]
    assert new.index(user) >= len(old)  # the files of the shop still have the user, whose number is never used again


@pytest.mark.slow
def test_a_killed_update_goes_on_and_serves_yesterday_meanwhile(tmp_path):
    shop = Shop(tmp_path, days=15)
    shop.update()
    shop.next()
    for step in ("_candidate", "_keep"):
        line = [sys.executable, "-c", KILLED, step, str(shop.config), str(shop.workspace.root)]
        assert subprocess.run(line, check=False).returncode == -signal.SIGKILL
        assert shop.publication.current is not None
    assert shop.update().verdict in {"promoted", "nothing new"}
    assert shop.state.versions[-1]["version"] == 2
    assert shop.state.rows == sum(len(day_of_shop(number)) for number in range(16))


def test_the_gate_refuses_a_worse_model_and_no_equal_one(shop):
    state = shop.state
    run, data = shop.workspace.run(state.versions[0]["run"]), shop.workspace.data(state.versions[0]["data"])
    metric, good = outcomes(run, data, lambda _: None)
    config = load(shop.config).evaluate
    same = judge(metric, good, good, tolerance=0.05, config=config)
    assert (same.passed, same.low, same.high) == (True, 0, 0)
    bad = Rankings(**{**vars(good), "hits": {"model": np.zeros_like(good.hits["model"])}})
    assert not judge(metric, good, bad, tolerance=0.05, config=config).passed
    assert judge(metric, bad, good, tolerance=0.05, config=config).passed


def test_facts_of_days_add_up():
    one = Day(1, 10, 5.0, 2, {"user": 1}, {"x": 0}, {"x": (10, 5.0, 3.0)})
    two = Day(2, 30, 9.0, 7, {"user": 2}, {"x": 4}, {"x": (26, 1.0, 2.0)})
    assert added([one, two]) == Day(2, 40, 9.0, 7, {"user": 3}, {"x": 4}, {"x": (36, 6.0, 5.0)})
    assert Problem("rows", "x").check == "rows"


def test_a_drift_that_the_checks_take_is_an_alarm_of_the_watch(tmp_path):
    """Half of the ratings rise to 5, in three real updates."""
    shop = Shop(tmp_path, days=45)
    assert shop.update().verdict == "promoted"
    assert watch("shop", shop.workspace).changed == []
    for _ in range(3):
        shop.next(_with(2, lambda ratings: np.where(np.arange(len(ratings)) % 2, ratings, 5)))
        assert shop.update().verdict == "promoted"
    found = watch("shop", shop.workspace)
    assert [one.name for one in found.changed] == ["mean of rating"]
    [change] = found.changed[0].changes
    assert (change.first, change.found) == (45, 47)
    history = shop.state.history
    assert [one["day"] - FIRST_DAY for one in history] == [44, 45, 46, 47]
    assert {0 < one["coverage"] <= 1 and 0 <= one["value"] <= 1 for one in history} == {True}
    assert found.served == 4
    assert {one.about for one in found.figures} == {"rows", "model"}


def test_days_of_a_year_stay_and_then_the_latest_ten_weeks(tmp_path):
    shop = Shop(tmp_path, days=22)
    shop.update()
    state = shop.state
    one = state.days[0]
    state.days[:0] = [replace(one, day=one.day - number) for number in range(KEPT + 400, 0, -1)]
    state.write(shop.workspace.root / "daily" / "shop" / "state.json")
    shop.next()
    shop.update()
    days = [day.day for day in shop.state.days]
    assert (len(days), days[-1]) == (KEPT, FIRST_DAY + 22)
