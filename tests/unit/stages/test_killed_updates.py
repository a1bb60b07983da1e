"""Updates that are killed at random moments: a version is served meanwhile, and the next run ends as one without kills."""

import os
import random
import shutil
import time
from pathlib import Path

import pytest

from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.query import Query
from recsys_cli.workspace import Workspace
from tests.forked import Forked
from tests.unit.stages.test_update import Shop

KILLS = int(os.environ.get("RECSYS_KILLS", "13"))
"""Kills of each model."""


def started(shop: Shop) -> Forked:
    with Path(os.devnull).open("w") as out:
        line = ["-w", str(shop.workspace.root), "update", str(shop.config)]
        return Forked(line, streams=(out.fileno(),) * 3, cwd=shop.config.parent)


def contents(version: Path) -> dict[str, bytes]:
    """Return the files of a version without those with times, or with names of runs and of the workspace."""
    named = {"manifest.json", "model_card.md", "plan.json"}
    paths = (path for path in sorted(version.rglob("*")) if path.is_file() and path.name not in named)
    return {str(path.relative_to(version)): path.read_bytes() for path in paths}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["ease", "mf"])
def test_a_version_is_served_after_any_kill_and_the_next_run_ends_as_without(tmp_path, model):
    draw = random.Random(KILLS)
    shop = Shop(tmp_path, days=12, model=model)
    started(shop).wait()
    calm = Shop.__new__(Shop)
    calm.__dict__.update(vars(shop), workspace=Workspace(tmp_path / "calm"))
    shutil.copytree(shop.workspace.root, calm.workspace.root, symlinks=True)
    killed = 0
    while killed < KILLS:
        shop.next()
        begun = time.perf_counter()
        assert started(calm).wait() in {0, 7}
        seconds = time.perf_counter() - begun
        is_killed = True
        while is_killed and killed < KILLS:
            process = started(shop)
            time.sleep(draw.uniform(0, 1.1 * seconds))
            process.kill()
            is_killed = process.wait() < 0
            killed += is_killed
            served = shop.publication.current
            served.verify()
            assert load_bundle(served.folder).recommend([Query(user=250)])[0].items
        assert started(shop).wait() in {0, 7}
        found, expected = shop.publication, calm.publication
        assert list(found.versions) == list(expected.versions)
        assert contents(found.current.folder) == contents(expected.current.folder)
        mine, theirs = (dict(vars(one.state)) for one in (shop, calm))
        for state in (mine, theirs):
            state["versions"] = [{**one, "run": "", "data": ""} for one in state["versions"]]
            state["ids"] = ""
            state["history"] = [{**one, "at": 0} for one in state["history"]]
        assert mine == theirs
    left = [path for path in shop.workspace.root.rglob("*.partial") if time.time() - path.stat().st_mtime > 200]
    assert not left  # but those of the latest minutes
