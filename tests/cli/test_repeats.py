"""A shop whose customers buy the same items again: `evaluate.repeats` from `init` to the served list."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from recsys_cli.config import load
from tests.cli.conftest import Recsys

CUSTOMERS, PURCHASES, KINDS = 120, 24, 6


def write(path: Path, *, kinds: int = KINDS, event: bool = False, times: bool = True) -> None:
    """Write purchases of each customer among `kinds` products of its own, out of 200 of equal popularity."""
    rng = np.random.default_rng(5)
    customer = np.tile(np.arange(CUSTOMERS), PURCHASES)
    item = (customer * 17 + rng.integers(0, kinds, len(customer)) * 31) % 200
    columns = {"user": customer, "item": item, "time": 1_600_000_000 + 3_600 * np.arange(len(customer))}
    kind = {"event": rng.choice(["view", "purchase"], len(customer))} if event else {}
    pl.DataFrame(columns | kind).drop([] if times else ["time"]).write_csv(path)


@pytest.mark.parametrize(
    ("kinds", "event", "times", "is_proposed"),
    [(KINDS, False, True, True), (150, False, True, False), (KINDS, True, True, False), (KINDS, False, False, False)],
)
def test_repeats_are_proposed_where_many_rows_are_second_purchases(
    recsys: Recsys, *, kinds: int, event: bool, times: bool, is_proposed: bool
) -> None:
    write(Path("t.csv"), kinds=kinds, event=event, times=times)
    answer = recsys("--json", "init", "t.csv", "--yes")
    assert load(Path("t.yaml")).evaluate.repeats is is_proposed
    notes = " ".join(answer.json["notes"])
    assert ("evaluate.repeats=false leaves them out" in notes) is is_proposed
    assert ("without times, they may be copies of rows" in notes) is not times


def test_a_copy_of_the_target_in_an_earlier_split_is_named_and_no_hit(recsys: Recsys) -> None:
    rows = [f"{user},{(7 * user + 3 * place) % 40},{100 * user + place}" for user in range(60) for place in range(8)]
    Path("t.csv").write_text("\n".join(["user,item,time", *rows, *rows[7::8]]) + "\n")
    assert recsys("init", "t.csv", "--yes").code == 0
    Path("copies.yaml").write_text(re.sub("\n.*Deduplicate.*", "", Path("t.yaml").read_text()))
    for name, copies in (("t.yaml", 0), ("copies.yaml", 60)):
        made = recsys("--json", "run", name, "split={method: leave-last-out}", "model={name: popularity}").json
        counts = made["evaluate"]["counts"]
        assert (counts["pairs_repeated"], counts["relevant"]) == (copies, 60 - copies)
        assert any("copies tell the targets" in one["text"] for one in made["etl"]["findings"]) is bool(copies)


def test_own_items_come_first_in_the_figures_and_in_the_lists(recsys: Recsys) -> None:
    write(Path("t.csv"))
    assert recsys("init", "t.csv", "--yes").code == 0
    # Candidates of `auto` without the slow one; the choice is by valid, of rankings with seen items.
    made = recsys("--json", "run", "t.yaml", "model={name: popularity, own_first: true}")
    assert made.code == 0, made.err
    ranking = {name: figures["ndcg@10"]["value"] for name, figures in made.json["evaluate"]["ranking"].items()}
    assert ranking["model"] == ranking["popularity, own items first"] > 0.5 > 3 * ranking["popularity"]
    assert "(baseline)" not in recsys("evaluate").out  # not beside a baseline of the same figures
    found = recsys("--json", "inspect", "user", "7").json
    assert found["to_find"] > 0  # purchases of test repeat those of the history
    assert any(one["hit"] for one in found["recommended"])
    assert "Seen items are ranked and relevant." in made.json["evaluate"]["protocol"]["seen"]
    assert made.json["train"]["valid"]["ndcg@10"] > 0.5
    assert recsys("export", "--out", "bundle").code == 0
    own = {17 * 7 + 31 * kind for kind in range(KINDS)}
    for source in ([], ["bundle"]):
        answer = recsys("--json", "recommend", *source, "--user", "7", "--k", str(KINDS)).json
        shown = answer["items"]
        assert {item["item"] for item in shown} == {item % 200 for item in own}
        assert all(item["because"] == [str(item["item"])] for item in shown)  # of the history
        new = recsys("--json", "recommend", *source, "--user", "nobody", "--k", str(KINDS)).json
        assert (answer["source"], new["source"]) == ("model", "popularity")
        assert not any(item["because"] for item in new["items"])
        left_out = recsys("--json", "recommend", *source, "--user", "7", "--exclude-seen").json["items"]
        assert not {item["item"] for item in left_out} & own
    assert recsys("recommend", "--all", "--out", "all.csv", "--k", "3").code == 0
    rows = pl.read_csv("all.csv").filter(pl.col("user") == 7)
    assert set(rows["item"]) <= {item % 200 for item in own}
    assert json.loads(Path("bundle/manifest.json").read_text())["repeats"] is True


def test_seen_items_stay_out_without_repeats(recsys: Recsys) -> None:
    write(Path("t.csv"))
    assert recsys("init", "t.csv", "--yes").code == 0
    made = recsys("--json", "run", "t.yaml", "model={name: popularity}", "evaluate.repeats=false")
    assert "popularity, own items first" not in made.json["evaluate"]["ranking"]
    assert any("evaluate.repeats=true ranks them" in note for note in made.json["evaluate"]["notes"])
    shown = recsys("--json", "recommend", "--user", "7").json["items"]
    assert not {item["item"] for item in shown} & {(17 * 7 + 31 * kind) % 200 for kind in range(KINDS)}
