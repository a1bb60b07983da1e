"""`recsys watch`: constructed days of a shop with a weekly rhythm and noise, ten planted drifts, and real updates and servers."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from recsys_cli.cli import app
from recsys_cli.errors import MissingArtifactError
from recsys_cli.etl.calendar import DAY, Day
from recsys_cli.serving.feedback.state import COMMIT, Event
from recsys_cli.stages.daily import State
from recsys_cli.stages.watch import Figure, Watch, watch
from recsys_cli.workspace import Workspace
from tests.browser import see

FIRST_DAY = 19_680
WEEK = np.exp([0, 0.05, -0.1, 0.1, 0.3, 0.5, 0.2])
CLEAN = dict.fromkeys(
    ("rows", "unknown", "label", "nulls", "bot", "score", "coverage", "latency", "feedback", "skew"), 0.0
)


class Life:
    """Files of a shop after some days, of which the last ones have a drift.

    Args:
        folder: A new folder.
        seed: Of the noise.
        days: Number of days.
        drift: Its name, from `CLEAN`; None for none.
        begin: Day on which it begins.
    """

    def __init__(self, folder: Path, seed: int, *, days: int, drift: str | None = None, begin: int = 0) -> None:
        self.workspace, self.days = Workspace(folder), days
        self.rng = np.random.default_rng(seed)
        self.week = WEEK ** self.rng.uniform(0.3, 1.2)
        noise = self.rng.standard_t(5, (4, days)) * 0.03
        self.noise = np.array([np.convolve(one, 0.4 ** np.arange(8))[:days] for one in noise])
        state, traffic, events = State(key="made", through=float((FIRST_DAY + days) * 86_400 - 1)), [], []
        for day in range(days):
            on = CLEAN if drift is None or day < begin else CLEAN | {drift: 1.0}
            state.days.append(self.rows(day, on))
            state.history.append(self.model(day, on))
            answers = self.count(20_000, day)
            traffic.append(self.traffic(day, answers, on, state.days[-1]))
            events += self.feedback(day, answers, on)
        state.write(folder / "daily" / "shop" / "state.json")
        (folder / "feedback").mkdir()
        (folder / "feedback" / "traffic-0.jsonl").write_text("".join(json.dumps(one) + "\n" for one in traffic))
        lines = b"".join(one.line() for one in events)
        (folder / "feedback" / "000000.worker-0.jsonl").write_bytes(lines + COMMIT)

    def count(self, mean: float, day: int) -> int:
        return int(self.rng.poisson(mean * self.week[day % 7] * np.exp(0.001 * day) * self.rng.gamma(150, 1 / 150)))

    def rows(self, day: int, on: dict[str, float]) -> Day:
        rows = int(self.count(5_000, day) * (1 - 0.4 * on["rows"]))
        unknown = {
            "user": self.rng.binomial(rows, 0.04 * self.rng.gamma(60, 1 / 60) * (1 + on["unknown"])),
            "item": self.rng.binomial(rows, 0.01 * self.rng.gamma(60, 1 / 60)),
        }
        most = int(self.rng.gumbel(25, 3)) if not on["bot"] else int(0.05 * rows)
        nulls = {"user": 0, "rating": 0, "price": int(self.rng.binomial(rows, 0.03 + 0.04 * on["nulls"]))}
        sums = {
            "rating": self.sums(rows, 3.5 - 0.2 * on["label"] + self.rng.normal(0, 0.02), 1.0),
            "price": self.sums(rows - nulls["price"], 20 + self.rng.normal(0, 0.3), 10.0),
        }
        return Day(FIRST_DAY + day, rows, float((FIRST_DAY + day + 1) * 86_400 - 1), most, unknown, nulls, sums)

    def sums(self, count: int, mean: float, deviation: float) -> tuple[int, float, float]:
        mean += self.rng.normal(0, deviation / max(1, count) ** 0.5)
        return count, mean * count, (mean**2 + deviation**2) * count

    def model(self, day: int, on: dict[str, float]) -> dict[str, object]:
        return {
            "day": FIRST_DAY + day, "at": (FIRST_DAY + day + 1.25) * 86_400, "settings": "same", "metric": "ndcg@10",
            "value": 0.3 * np.exp(self.noise[0, day]) * (1 - 0.5 * on["score"]), "yesterday": None,
            "score": 1.2 + 0.5 * self.noise[1, day], "spread": 0.5,
            "coverage": 0.4 * np.exp(self.noise[2, day]) * (1 - 0.6 * on["coverage"]),
        }  # fmt: skip

    def traffic(self, day: int, answers: int, on: dict[str, float], trained: Day) -> dict[str, object]:
        failed = int(self.rng.poisson(answers * 0.0005))
        seconds = 0.005 * np.exp(self.noise[3, day]) * (1 + on["latency"])
        fallback = int(self.rng.binomial(answers, 0.08))
        rows = min(answers, 8_000)
        sample = {
            "day": 0, "rows": rows, "last": 0.0, "most": 0,
            "unknown": {"user": int(self.rng.binomial(rows, 0.08)), "device": int(self.rng.binomial(rows, 0.001))},
            "nulls": {"price": int(self.rng.binomial(rows, 0.03))},
            "sums": {"price": self.sums(rows, 20 + self.rng.normal(0, 0.3) + 4 * on["skew"], 10.0)},
        }  # fmt: skip
        return {
            "from": (FIRST_DAY + day) * 86_400.0, "status": {"200": answers, "503": failed},
            "source": {"model": answers - fallback, "popularity": fallback},
            "seconds": {"": (answers + failed) * seconds},
            "sample": sample,
        }  # fmt: skip

    def feedback(self, day: int, answers: int, on: dict[str, float]) -> list[Event]:
        number = self.rng.poisson(answers * 0.01 * (1 - 0.4 * on["feedback"]))
        start = (FIRST_DAY + day) * 86_400 * 10**9
        return [Event("put", start + one, user=f"u{day}-{one}", item=one) for one in range(number)]

    def watch(self, *, later: int = 0) -> Watch:
        return watch("shop", self.workspace, now=(FIRST_DAY + self.days + later + 0.3) * DAY)

    def change_state(self, change: Callable[[State], None]) -> None:
        path = self.workspace.root / "daily" / "shop" / "state.json"
        state = State.read(path)
        change(state)
        state.write(path)


NAMES = {
    "rows": "rows", "unknown": "rows with a new user", "label": "mean of rating", "nulls": "nulls of price",
    "bot": "rows of one user", "score": "ndcg@10", "coverage": "coverage@10", "latency": "seconds of a request",
    "feedback": "positive feedback per answer", "skew": "skew of price in requests",
}  # fmt: skip


def figure(found: Watch, name: str) -> Figure:
    [one] = [one for one in found.figures if one.name == name]
    return one


def found_on(one: Figure) -> list[tuple[int, int]]:
    """Return first day and day of the alarm of each change, counted from the first day of the shop."""
    return [(one.first + change.first - FIRST_DAY, one.first + change.found - FIRST_DAY) for change in one.changes]


@pytest.mark.parametrize("drift", NAMES)
def test_each_drift_is_found_within_three_days_and_named_first(tmp_path: Path, drift: str) -> None:
    found = Life(tmp_path, 0, days=63, drift=drift, begin=60).watch()
    one = figure(found, NAMES[drift])
    [(first, alarm)] = found_on(one)
    assert (first, alarm <= 62) == (60, True)
    assert one in found.figures[:2]
    assert len(found.changed) <= 2, "the feedback itself and per answer"
    text = one.sentence("shop")
    verb = "fell" if drift in {"rows", "label", "score", "coverage", "feedback"} else "rose"
    assert text.startswith(
        f"{one.name} {verb} from {one.shown(one.ends[1])} to {one.shown(one.ends[0])} on 2024-01-18, found on "
    )
    assert (": recsys rollback shop " in text) == (drift in {"score", "coverage"})
    assert Life(tmp_path / "before", 0, days=60, drift=drift, begin=60).watch().changed == []


@pytest.mark.slow
def test_clean_days_are_no_alarm_at_any_look(tmp_path: Path) -> None:
    """The changes of the last look have those of all looks before. 20 seeds: scripts/results/watch.json."""
    for seed in range(3):
        found = Life(tmp_path / str(seed), seed, days=228).watch()
        assert {one.name: one.changes for one in found.figures if one.changes} == {}
        assert {one.state for one in found.figures} == {"as usual"}
        assert len(found.figures) == 22
        assert found.notes == ()


def test_an_alarm_stays_for_a_week_and_then_the_new_level_has_too_few_days(tmp_path: Path) -> None:
    one = figure(Life(tmp_path / "week", 1, days=68, drift="label", begin=60).watch(), "mean of rating")
    assert one.state == "changed"
    later = figure(Life(tmp_path / "later", 1, days=70, drift="label", begin=60).watch(), "mean of rating")
    assert later.changes == one.changes
    assert (later.change, later.state) == (None, "too few days: 10 of 29")


def test_few_days_do_not_look_fine(tmp_path: Path) -> None:
    found = Life(tmp_path, 0, days=20).watch()
    assert {one.state for one in found.figures} == {"too few days: 20 of 29", "too few days: 19 of 29"}
    assert found.notes == ("22 of 22 figures have too few days, which says nothing on them",)
    assert found.page.read_text().count("<svg") == 22


def test_a_feed_or_a_server_that_ends_is_an_alarm_until_it_is_back(tmp_path: Path) -> None:
    life = Life(tmp_path, 2, days=40)
    assert life.watch(later=1).changed == [], "the update of the morning has not run yet"
    for later in (5, 60):
        found = life.watch(later=later)
        assert [one.name for one in found.changed[:3]] != []
        assert {"rows", "requests", "positive feedback"} <= {one.name for one in found.changed}
        assert found_on(figure(found, "rows"))[0][0] == 40
        assert f"no new rows were taken for {later} days" in found.notes


def test_requests_that_differ_from_the_first_day_on_are_an_alarm(tmp_path: Path) -> None:
    life = Life(tmp_path, 0, days=8)
    path = tmp_path / "feedback" / "traffic-0.jsonl"
    given = [json.loads(line) for line in path.read_text().splitlines()]
    for one in given:
        rows = one["sample"]["rows"]
        one["sample"]["unknown"]["device"] = int(0.9 * rows)
        one["sample"]["nulls"]["price"] = int(0.5 * rows)
        one["sample"]["sums"]["price"] = [rows, 50.0 * rows, 2_600.0 * rows]
    path.write_text("".join(json.dumps(one) + "\n" for one in given) + '{"from": 1, "sta')  # of a kill
    nulls, device, skew = sorted(one.sentence("shop").partition(",")[0] for one in life.watch().changed)
    assert device == "requests with an unknown device is 90 % since 2023-11-20"
    assert nulls.startswith("nulls of price in requests is 0.4")
    assert skew.startswith("skew of price in requests is 3.0")


def test_the_present_day_rows_of_a_first_update_and_other_settings_do_not_count(tmp_path: Path) -> None:
    life = Life(tmp_path, 0, days=30)

    def change(state: State) -> None:
        state.history[-1]["at"] = (FIRST_DAY + 29.25) * DAY  # at six in the morning of the last day
        for one in state.history[:20]:
            one["settings"] = "others"
        state.history[:10] = []
        state.refused = {"problems": [{"check": "rows", "text": "3 rows"}], "gate": None}

    life.change_state(change)
    found = life.watch()
    assert len(figure(found, "rows").values) == 29
    assert (figure(found, "rows with a new user").first, figure(found, "ndcg@10").first) == (
        FIRST_DAY + 11,
        FIRST_DAY + 20,
    )
    assert found.notes[0] == "the last update was refused: rows: 3 rows"


def test_the_command_prints_figures_writes_a_page_and_exits_with_8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Life(tmp_path / "w", 0, days=63, drift="score", begin=60)
    monkeypatch.setattr("time.time", lambda: (FIRST_DAY + 63.3) * DAY)
    run = CliRunner()
    shown = run.invoke(app, ["watch", "configs/shop.yaml", "--workspace", str(tmp_path / "w")])
    assert (shown.exit_code, "ndcg@10 fell from" in shown.stdout) == (8, True)
    result = json.loads(run.invoke(app, ["watch", "shop", "--json", "--workspace", str(tmp_path / "w")]).stdout)
    assert (result["changed"], result["figures"][0]["name"], result["served"]) == (1, "ndcg@10", None)
    assert len(result["figures"][0]["values"]) == 63
    assert run.invoke(app, ["watch", "shop", "--quiet", "--workspace", str(tmp_path / "w")]).stdout == ""
    missing = run.invoke(app, ["watch", "other", "--workspace", str(tmp_path / "w")])
    assert missing.exit_code == 3
    with pytest.raises(MissingArtifactError, match="no update has the name other") as error:
        watch("other", Workspace(tmp_path / "w"))
    assert error.value.hint == "the names are shop"
    page = Path(result["page"]).read_text()
    assert page.index("Ndcg@10 fell from") < page.index("All figures")
    seen = see(page, tmp_path, width=400)
    assert (seen["loaded"], seen["overflow"], seen["headings"], seen["charts"]) == (
        [],
        0,
        ["Changed", "All figures"],
        22,
    )
