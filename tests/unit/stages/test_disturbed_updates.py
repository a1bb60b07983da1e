"""Updates beside other updates and rollbacks, with a clock set back, and with edited watermarks."""

import json
import random
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from recsys_cli.config import load
from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.query import Query
from recsys_cli.stages import update as stage
from recsys_cli.stages.daily import State
from recsys_cli.stages.publish import Publication
from recsys_cli.stages.update import update
from recsys_cli.workspace import Workspace, read_json, write_json
from tests.unit.stages.test_killed_updates import started
from tests.unit.stages.test_update import FIRST_DAY, Shop


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A shop after two updates, with a day to take."""
    shop = Shop(tmp_path_factory.mktemp("shop"), days=12)
    shop.update()
    shop.next()
    shop.update()
    shop.next()
    return shop


@pytest.fixture
def shop(served, tmp_path):
    """A copy of the workspace of the shop."""
    made = Shop.__new__(Shop)
    made.__dict__.update(vars(served), workspace=Workspace(tmp_path / "workspace"))
    shutil.copytree(served.workspace.root, made.workspace.root, symlinks=True)
    return made


def state_of(shop: Shop) -> Path:
    return shop.workspace.root / "daily" / "shop" / "state.json"


def check(shop: Shop, number: int) -> None:
    """Check that a version is served, whole, and answers."""
    current = shop.publication.current
    assert current.number == number
    current.verify()
    assert load_bundle(current.folder).recommend([Query(user=250)])[0].items


@pytest.mark.slow
def test_of_two_updates_at_once_one_publishes(shop):
    processes = [started(shop) for _ in range(2)]
    assert [one.wait() for one in processes] == [0, 0]
    check(shop, 3)
    assert shop.update().verdict == "nothing new"
    assert len(shop.state.versions) == 3


def test_rollbacks_during_an_update_leave_a_whole_version_and_are_named_by_the_next_one(shop):
    draw, process, number = random.Random(0), started(shop), 0
    while process.poll() is None:
        versions = shop.publication
        try:
            number = versions.rollback().number
        except MissingArtifactError:
            versions.publish(shop.workspace.run(shop.state.versions[1]["run"]), shop.workspace, newest=True)
        time.sleep(draw.uniform(0, 0.2))
    assert process.wait() == 0
    assert number
    while shop.publication.current.number > 1:
        shop.publication.rollback()
    check(shop, 1)
    shop.number = 14
    made = shop.next()
    try:
        found = shop.update(accept=["gate"])
        assert found.steps["rollback"].startswith("version 1 is served again")
        check(shop, found.version)
        assert found.version == max(shop.publication.versions)
    finally:
        made.unlink()


def test_a_clock_set_back_refuses_a_day_until_it_is_right(shop, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(stage.time, "time", lambda: (FIRST_DAY + 5) * 86_400.0)
        assert [one.check for one in shop.update().problems] == ["time"]
        check(shop, 2)
    assert shop.update(accept=["time"]).verdict == "promoted"
    check(shop, 3)


@pytest.mark.parametrize("edit", [
    lambda text: text.replace('"rows": ', '"rows": 9'), lambda text: text[:-40], lambda _: "", lambda _: "[]",
    lambda text: text.replace('"since_full"', '"since_ful"'),
])  # fmt: skip
def test_an_edited_state_is_refused_and_a_removed_one_begins_anew_beside_the_served_version(shop, edit):
    path = state_of(shop)
    path.write_text(edit(path.read_text()))
    with pytest.raises(DataError) as caught:
        shop.update()
    assert str(path) in caught.value.message
    assert f"remove {path.parent}" in (caught.value.hint or "")
    check(shop, 2)
    shutil.rmtree(path.parent)
    assert shop.update().verdict == "promoted"
    check(shop, 3)
    assert shop.state.rows == sum(day.rows for day in shop.state.days)


def test_a_watermark_of_the_future_with_the_right_checksum_takes_no_day_unseen(shop):
    state = read_json(state_of(shop), hint="")
    write_json(state_of(shop), {**state, "through": 4e9})
    found = shop.update()
    assert found.verdict == "refused"
    assert "late" in [one.check for one in found.problems]
    check(shop, 2)


def test_a_state_of_an_earlier_backup_names_the_way_back(shop):
    before = state_of(shop).read_bytes()
    assert shop.update().version == 3
    content = json.loads(before)
    state_of(shop).write_bytes(before)
    with pytest.raises(MissingArtifactError) as caught:
        shop.update()
    run = content["versions"][-1]["run"]
    assert f"recsys publish shop {run}" in (caught.value.hint or "")
    shop.publication.publish(shop.workspace.run(run), shop.workspace)
    assert shop.update().verdict == "promoted"


def test_updates_of_another_config_keep_what_this_one_serves(shop):
    other = shop.config.with_name("other.yaml")
    other.write_text(shop.config.read_text().replace("ease", "item-knn"))
    settings = load(other, ["update.keep=1"])
    made: list[Path] = []
    for _ in range(3):
        update(settings, shop.workspace, "other", accept=["gate"])
        made.append(shop.next())
    kept = {one["data"] for one in shop.state.versions}
    assert kept <= {data.key for data in shop.workspace.all_data()}
    states = [State.read(path) for path in shop.workspace.root.glob("daily/*/state.json")]
    needed = {one["run"] for each in states for one in each.versions}
    assert {run.folder.name for run in shop.workspace.runs()} == needed
    assert [len(each.versions) for each in states if each.ids not in kept] == [1]
    assert list(Publication(shop.workspace.root / "published" / "other").versions) == [3]
    assert shop.update(accept=["rows", "gate"]).verdict == "promoted"
    for path in made:
        path.unlink()


def test_a_rollback_is_refused_by_damage_and_needs_no_delta(shop):
    shop.publication.delta(2).unlink()  # forget removes deltas
    assert shop.publication.rollback().number == 1
    shop.publication.publish(shop.workspace.run(shop.state.versions[-1]["run"]), shop.workspace, newest=True)
    (path,) = shop.publication.versions[1].folder.glob("weights*")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    before = shop.publication.current.number
    with pytest.raises(DataError, match="damaged"):
        Publication(shop.publication.folder).rollback()
    check(shop, before)


def test_lost_data_names_the_folder_to_remove(shop):
    shutil.rmtree(shop.workspace.data(shop.state.ids).folder)
    with pytest.raises(MissingArtifactError) as caught:
        shop.update()
    assert str(state_of(shop).parent) in caught.value.hint


def test_an_accepted_future_makes_no_later_day_late(shop):
    future = shop.next(lambda rows: np.add(rows, [0, 0, 0, 3_600 * 24 * 365 * 30]))
    assert shop.update(accept=["time", "rows", "gate"]).verdict == "promoted"
    assert shop.state.through <= time.time()
    future.unlink()
