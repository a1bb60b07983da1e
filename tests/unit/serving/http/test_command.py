"""`recsys serve` and `recsys feedback`: refusals with exit codes, and the table for the next training."""

from __future__ import annotations

import builtins
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import recsys_cli as recsys
from recsys_cli.cli import app
from recsys_cli.errors import ConfigError
from recsys_cli.serving.feedback.arms import name_of, share_point
from recsys_cli.serving.feedback.log import worker_file
from recsys_cli.serving.feedback.state import Event
from recsys_cli.serving.http.metrics import Metrics
from recsys_cli.serving.http.service import FeedbackDesk
from recsys_cli.serving.http.settings import Settings
from recsys_cli.stages.serve import named_bundles, shares_of
from tests.servers import running


def run(*line: str) -> Any:
    return CliRunner().invoke(app, list(line))


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        (("{bundle}", "--host", "0.0.0.0"), 2, "without a token"),
        (("{bundle}", "--share", "typo=1"), 2, "no such bundle"),
        (("a={bundle}", "b={bundle}", "--share", "a=0.5"), 2, "add up to 0.5"),
        (("{bundle}", "{bundle}"), 2, "two bundles are named"),
        (("{bundle}/data",), 4, "not a bundle"),
        (("{bundle}/nothing",), 3, "no bundle"),
        (("{bundle}", "--token-file", "{short}"), 2, "16 or more"),
        (("{bundle}", "--token-file", "{bundle}"), 2, "readable file"),
        (("{bundle}", "--feedback", "{short}"), 2, "name a folder with --feedback"),
        (("{bundle}", "--feedback", "{short}/feedback"), 2, "name a folder with --feedback"),
    ],
)
def test_refusals(
    tmp_path: Path, bundle_of: Callable[[str], Path], line: tuple[str, ...], code: int, text: str
) -> None:
    (tmp_path / "short").write_text("short")
    given = [part.format(bundle=bundle_of("mf"), short=tmp_path / "short") for part in line]
    result = run("serve", *given, "--port", "0", "-w", str(tmp_path))
    assert result.exit_code == code, result.output
    assert text in result.output


def test_a_missing_extra_is_exit_5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *others: Any, **named: Any) -> Any:
        if name == "uvicorn":
            raise ModuleNotFoundError(name)
        return real(name, *others, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    result = run("serve", str(tmp_path))
    assert result.exit_code == 5
    assert "pip install 'recsys-cli[serve]'" in result.output


def test_shares_follow_the_users() -> None:
    bundles = named_bundles(["x/a", "b=x/current"])
    assert list(bundles) == ["a", "b"]
    assert shares_of([], bundles) == {"a": 0.5, "b": 0.5}
    assert shares_of(["a=0.9,b=0.1"], bundles) == shares_of(["a=0.9", "b=0.1"], bundles) == {"a": 0.9, "b": 0.1}
    with pytest.raises(ConfigError):
        shares_of(["a=nan"], bundles)
    points = [share_point(user) for user in range(2_000)]
    assert 0.85 < sum(point < 0.9 for point in points) / 2_000 < 0.95
    assert share_point(42) == share_point("42")
    first, again = ({"a": 0.7, "b": 0.2, "c": 0.1}, {"c": 0.1, "a": 0.7, "b": 0.2})
    names = [name_of(user, first) for user in range(2_000)]
    assert names == [name_of(user, again) for user in range(2_000)]  # a restart with other arguments moves nobody
    assert [names.count(name) / 2_000 for name in "abc"] == pytest.approx([0.7, 0.2, 0.1], abs=0.04)
    others = [name_of(user, {"a": 0.7, "d": 0.3}) for user in range(2_000)]  # of another test: independent
    both = sum(name != "a" == other for name, other in zip(names, others, strict=True))
    assert both / 2_000 == pytest.approx(0.3 * 0.7, abs=0.04)


def test_events_have_distinct_times_in_order_also_while_the_clock_stands_still_or_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers whose clock says the same, and then an earlier time."""
    settings = Settings(bundles={}, shares={}, feedback=tmp_path, workers=2)
    desks = [FeedbackDesk(settings, worker, Metrics(), upserted=lambda: None) for worker in (0, 1)]
    times: list[list[int]] = [[], []]
    for clock in (10**18, 10**18, 10**18 - 10**9):
        monkeypatch.setattr(time, "time_ns", lambda clock=clock: clock)
        for desk, own in zip(desks, times, strict=True):
            own += [desk.event("put", user=1, item=item, label=1.0).at for item in range(3)]
    assert all(own == sorted(own) for own in times)
    assert len({*times[0], *times[1]}) == 18


def test_feedback_is_a_table_for_the_etl(tmp_path: Path) -> None:
    folder = tmp_path / "feedback"
    folder.mkdir()
    events = [Event("put", at, at % 5, at % 7 + 1, 5.0 if at % 2 else 1.0, 1_000.0 + at) for at in range(60)]
    events.append(Event("delete", 99, 4))
    events.append(Event("put", 100, 77, 1, None, 1_000.0))
    worker_file(folder, 0).write_bytes(b"".join(event.line() for event in events))
    line = ("feedback", str(folder), "--columns", "userId,movieId,rating,timestamp")
    refused = run(*line)
    assert refused.exit_code == 2
    assert "--like" in refused.output
    result = run(*line, "--like", "5")
    assert result.exit_code == 0
    assert "29 rows; 33 outdated events removed" in result.output
    (tmp_path / "ratings.csv").write_text(
        "userId,movieId,rating,timestamp\n" + "".join(f"{n % 9},{n % 7 + 1},{n % 5 + 1},{n}\n" for n in range(300))
    )
    config = recsys.load_config({
        "dataset": {"name": "files", "interactions": [str(tmp_path / "ratings.csv"), str(folder / "interactions.csv")]},
        "features": {
            "user": "userId", "item": "movieId", "label": "label", "timestamp": "timestamp",
            "ops": [
                {"op": "Categorify", "columns": ["userId", "movieId"]},
                {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
            ],
        },
        "model": {"name": "popularity"},
    })  # fmt: skip
    data = recsys.etl(config, recsys.Workspace(str(tmp_path / "workspace")), progress=False)
    assert sum(data.manifest["rows"].values()) == 300 + 29
    assert "\n77,1,5,1000\n" in (folder / "interactions.csv").read_text()


def test_the_order_of_the_bundles_moves_no_user(tmp_path: Path, bundle_of: Callable[[str], Path]) -> None:
    named, found = {"b": str(bundle_of("mf")), "a": str(bundle_of("ease"))}, []
    for number, order in enumerate((("a", "b"), ("b", "a"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        share = ",".join(f"{name}={ {'a': 0.3, 'b': 0.7}[name] }" for name in order)
        with running(folder, *(f"{name}={named[name]}" for name in order), "--share", share) as server:
            found.append([server.post("/recommend", {"user": user, "k": 1})["bundle"] for user in range(60)])
    assert found[0] == found[1]
    assert {"a", "b"} == set(found[0])


def test_the_arm_that_is_twice_as_good_is_found_in_the_log_of_a_server(
    tmp_path: Path, bundle_of: Callable[[str], Path]
) -> None:
    """400 users; each likes an item with 30 % in the arm main, and with 60 % in the arm test. The log knows the arms."""
    lines, rng = (f"main={bundle_of('mf')}", f"test={bundle_of('ease')}"), random.Random(5)
    with running(tmp_path, *lines, "--share", "main=0.5,test=0.5") as server:
        answers = server.post("/recommend/batch", {"requests": [{"user": user, "k": 1} for user in range(400)]})[
            "answers"
        ]
        rates = {user: {"main": 0.3, "test": 0.6}[one["bundle"]] for user, one in enumerate(answers)}
        liked = [{"user": user, "item": 7} for user, rate in rates.items() if rng.random() < rate]
        server.post("/feedback", {"events": liked})
        result = run("compare", "--feedback", str(server.feedback), "--against", "main")
    assert result.exit_code == 0, result.output
    assert "test: better than main" in result.output
    assert "left out" not in result.output
