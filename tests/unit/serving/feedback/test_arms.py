"""Arms of a feedback log: planted effects are found, equal arms have no verdict, and the log's own arms come first."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from recsys_cli.cli import app
from recsys_cli.serving.feedback.arms import arms_of, name_of
from recsys_cli.serving.feedback.log import worker_file
from recsys_cli.serving.feedback.state import COMMIT, Event
from recsys_cli.serving.feedback.table import rewrite

SHARES = {"main": 0.5, "test": 0.5}


def write(folder: Path, *events: Event) -> None:
    folder.mkdir(exist_ok=True)
    with worker_file(folder, 0).open("ab") as file:
        file.writelines([*(event.line() for event in events), COMMIT])


def day(seed: int, number: int, effect: float) -> list[Event]:
    """Return the feedback of a day of 400 users, without arms."""
    rng, events = np.random.default_rng([seed, number]), []
    for user in range(400):
        is_test = name_of(f"{seed}-{user}", SHARES, salted=False) == "test"
        rate = 0.03 * (effect if is_test else 1)
        if rng.random() < rate:
            events.append(Event("put", number * 1_000 + user, f"{seed}-{user}", number))
    return events


def compared(*line: str) -> Any:
    return CliRunner().invoke(app, ["compare", "--feedback", *line])


@pytest.mark.parametrize("seed", range(4))
def test_equal_arms_have_no_verdict_in_thirty_looks_and_one_twice_as_good_is_found(tmp_path: Path, seed: int) -> None:
    for number in range(30):
        write(tmp_path / "equal", *day(seed, number, 1.0))
        write(tmp_path / "better", *day(seed, number, 2.0))
        assert arms_of(tmp_path / "equal", SHARES).arms[1].verdict is None
    _, test = arms_of(tmp_path / "better", SHARES).arms
    assert (test.name, test.verdict) == ("test", "better")
    assert test.low < 2 < test.high
    _, main = arms_of(tmp_path / "better", SHARES, against="test").arms
    assert main.verdict == "worse"
    assert main.ratio == pytest.approx(1 / test.ratio)


def test_the_arm_of_the_log_comes_before_the_given_shares(tmp_path: Path) -> None:
    """Also after a compaction; shares that change weigh each event by the share of its time."""
    logged = [Event("put", at, at % 50, at, arm="main" if at % 2 else "test", share=0.9 if at % 2 else 0.1)
              for at in range(1, 101)]  # fmt: skip
    changed = Event("put", 200, 1, 999, arm="test", share=0.5)
    alone = Event("put", 201, 1, 998, arm="main", share=1.0)
    write(tmp_path, *logged, changed, alone, Event("put", 202, 1, 997), Event("delete", 300, 2, 2))
    for _ in range(2):
        found = arms_of(tmp_path, {})
        assert [(one.name, one.hits, round(one.at_full_traffic)) for one in found.arms] == [
            ("main", 50, 56),
            ("test", 50, 492),
        ]
        assert (found.assigned, found.left_out) == (0, 2)
        assert rewrite(tmp_path) in {0, 2}
    assert arms_of(tmp_path, {"main": 0.9, "test": 0.1}).assigned == 1


def test_labels_above_the_bound_are_hits(tmp_path: Path) -> None:
    write(tmp_path, *(Event("put", at, at, 7, label=at % 5) for at in range(1, 101)))
    line = (str(tmp_path), "main=0.5", "test=0.5", "--positive-above", "3")
    result = compared(*line)
    assert result.exit_code == 0, result.output
    assert "no verdict yet" in result.output or "too few users" in result.output
    plain = json.loads(CliRunner().invoke(app, ["--json", "compare", "--feedback", *line]).output)
    assert sum(one["hits"] for one in plain["arms"]) == 20
    assert sum(one["users"] for one in plain["arms"]) == 100
    assert plain["assigned"] == 100


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        (("{log}/none",), 3, "has no feedback"),
        (("{log}",), 2, "two are needed"),
        (("{log}", "main=1"), 2, "two are needed"),
        (("{log}", "main"), 2, "main: no number"),
        (("{log}", "main=0.9"), 2, "add up to 0.9"),
        (("{log}", "main=0.9", "test=x"), 2, "test=x: no number"),
        (("{log}", "main=0.5", "test=0.5", "--against", "typo"), 2, "the arms are main, test"),
        (("{log}", "main=0.5", "test=0.5", "--html", "x.html"), 2, "use --json"),
        (("{bad}", "main=0.5", "test=0.5"), 4, "damaged"),
        (("{log}", "main=0.5", "test=0.5"), 0, "1 damaged lines of the log are skipped"),
    ],
)
def test_refusals_and_damage(tmp_path: Path, line: tuple[str, ...], code: int, text: str) -> None:
    log, bad = tmp_path / "log", tmp_path / "bad"
    write(log, *day(0, 0, 1.0))
    write(bad)
    for folder in (log, bad):
        with worker_file(folder, 0).open("ab") as file:
            file.write(b'{"user":1}\n')
    result = compared(*(part.format(log=log, bad=bad) for part in line))
    assert result.exit_code == code, result.output
    assert text in " ".join(result.output.split())
