"""The loop of a shop: a table of events is served, and the feedback of the server is part of the next training."""

import datetime
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.forked import program
from tests.servers import running

START = datetime.datetime(2024, 3, 1, tzinfo=datetime.UTC)
WEIGHTS = {"view": 1.0, "cart": 3.0, "purchase": 5.0}


class Shop:
    """A folder with events of a shop, whose times have a format; other formats: tests/cli/test_feedback_tables.py."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        draw = random.Random(1)
        rows = ["visitor_id,product_id,event_type,event_time"]
        for number in range(2_000):
            visitor, kind = draw.randint(1, 60), draw.choices(list(WEIGHTS), [80, 12, 8])[0]
            product = visitor % 5 * 10 + draw.randint(1, 14)
            rows.append(f"{visitor},{product},{kind},{self.at(number)}")
        (folder / "events.csv").write_text("\n".join(rows) + "\n")

    def at(self, minute: int, *, seconds: int = 0) -> str:
        moment = START + datetime.timedelta(minutes=10 * minute, seconds=seconds)
        return f"{moment:%d.%m.%Y %H:%M:%S}"

    def run(self, *line: str) -> str:
        done = subprocess.run(
            [program(), *line], cwd=self.folder, text=True, capture_output=True, timeout=300, check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        )  # fmt: skip
        assert done.returncode == 0, f"recsys {' '.join(line)}: {done.stdout}{done.stderr}"
        return done.stdout

    def train_rows(self) -> list[tuple[float, Any]]:
        """Return weight and time of all rows in train of the latest preparation."""
        shards = sorted(self.folder.glob("workspace/data/*/train/*.parquet"), key=lambda path: path.stat().st_mtime)
        rows = pq.read_table(shards[-1], columns=["row_weight", "event_time"])
        return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_the_feedback_of_a_shop_is_in_the_next_training(tmp_path):
    shop = Shop(tmp_path)
    shop.run("init", "events.csv", "--out", "shop.yaml", "--yes")
    shop.run("etl", "shop.yaml")
    shop.run("train")
    shop.run("export", "--out", "bundle")
    before = shop.train_rows()
    first, second = ((START + datetime.timedelta(minutes=100, seconds=part)).timestamp() for part in (7, 11))
    events = [
        {"user": 3, "item": 31, "event": "purchase", "time": first},
        {"user": 3, "item": 31, "event": "purchase", "time": second},
        {"user": 3, "item": 31, "event": "cart", "time": second},
        {"user": 3, "item": 32, "time": second},
    ]
    with running(
        tmp_path / "server", str(tmp_path / "bundle"), env={"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    ) as server:
        assert server.post("/feedback", {"events": events})["written"] == 4
        again = server.post("/feedback", {"events": events})
        assert (again["written"], again["unchanged"]) == (0, 4)
        assert server.get("/users/3")["num_interactions"] > 4
    shop.run("feedback", "server/feedback", "--like", "view")
    shop.run("etl", "shop.yaml", "dataset.interactions=[events.csv,server/feedback/interactions.csv]")
    new = sorted(set(shop.train_rows()) - set(before), key=lambda row: (row[1], row[0]))
    assert [weight for weight, _ in new] == [5.0, 1.0, 3.0, 5.0]
    assert [time / 10 ** (len(str(time)) - 10) for _, time in new] == [first, second, second, second]
