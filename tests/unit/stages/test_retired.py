"""`recsys update` of a shop with a product table: items without a row there leave the ranking, and keep their number."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import load
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.query import Query
from recsys_cli.stages.publish import Publication
from recsys_cli.stages.update import Update, update
from recsys_cli.workspace import Workspace

CONFIG = """
dataset: {name: files, interactions: LOG/*.csv, tables: {products: {files: PRODUCTS}}}
features:
  user: user
  item: item
  timestamp: timestamp
  label: label
  ops:
    - {op: LambdaOp, expression: "stars > 2", output: label, dtype: int8}
    - {op: JoinExternal, table: products, on: item, columns: [kind]}
    - {op: Categorify, columns: [user, item, kind]}
model: {name: MODEL}
train: {device: cpu, trackers: [], epochs: 1}
update: {full_every: null}
"""
ITEMS = [f"i{number:02}" for number in range(12)]


class Shop:
    """A shop with 12 items, all of them bought every day."""

    def __init__(self, folder: Path, model: str) -> None:
        self.log, self.products, self.config = folder / "log", folder / "products.csv", folder / "shop.yaml"
        self.log.mkdir()
        config = CONFIG.replace("LOG", str(self.log)).replace("PRODUCTS", str(self.products))
        if model == "ease":  # the table has titles only
            config = "\n".join(line for line in config.replace(", kind]", "]").split("\n") if "Join" not in line)
            config += "evaluate: {title: kind}\n"
        self.config.write_text(config.replace("MODEL", model))
        self.workspace, self.number = Workspace(folder / "workspace"), 0
        for _ in range(8):
            self.next(ITEMS)
        self.lists(ITEMS)

    def next(self, items: list[str]) -> None:
        """Write a day of 240 rows."""
        rng = np.random.default_rng(self.number)
        times = (19_700 + self.number) * 86_400 + np.sort(rng.integers(0, 86_400, 240))
        rows = [f"u{rng.integers(40)},{items[at % len(items)]},5,{time}" for at, time in enumerate(times)]
        (self.log / f"{self.number:03}.csv").write_text("\n".join(["user,item,stars,timestamp", *rows]) + "\n")
        self.number += 1

    def lists(self, items: list[str]) -> None:
        """Write the product table."""
        rows = [f"{one},{'abc'[int(one[1:]) % 3]}" for one in items]
        self.products.write_text("\n".join(["item,kind", *rows]) + "\n")

    def update(self, **options: object) -> Update:
        return update(load(self.config), self.workspace, "shop", **options)

    def ranked(self) -> set[str]:
        """Return all items that the served version recommends to a user, to a new one, and as similar ones."""
        served = load_bundle(Publication(self.workspace.root / "published" / "shop").current.folder, verify=True)
        queries = [Query(user="u3", k=100, exclude_seen=False), Query(k=100), Query(history=["i05", "i07"], k=100)]
        found = [*served.recommend(queries), served.similar("i01", 100)]
        assert all(answer.items for answer in found)
        return {one.item.id for answer in found for one in answer.items} | {
            one.id for one in served.catalog.search("i", 100)
        }

    def numbers(self) -> list[str]:
        """Return the vocabulary of items of the served version."""
        version = Publication(self.workspace.root / "published" / "shop").current
        return pq.read_table(version.data.vocabulary("item"))["value"].to_pylist()


@pytest.mark.parametrize("model", ["ease", "two-tower"])
def test_retired_items_leave_the_ranking_and_keep_their_number(tmp_path, model):
    shop = Shop(tmp_path, model)
    assert shop.update().version == 1
    assert shop.ranked() == {*ITEMS}
    numbers, left = shop.numbers(), [one for one in ITEMS if one != "i05"]
    shop.lists([*left, "i12"])
    shop.next([*left, "i12"])
    assert shop.update(accept=["gate"]).version == 2
    assert shop.ranked() == {*left, "i12"}
    assert shop.numbers() == [*numbers, "i12"]
    shop.lists([*ITEMS, "i12"])  # the table alone
    found = shop.update()
    assert (found.verdict, found.version) == ("promoted", 3)
    assert shop.ranked() == {*ITEMS, "i12"}
    assert shop.numbers() == [*numbers, "i12"]
    assert shop.update().verdict == "nothing new"
    assert shop.update(full=True).version == 4
    shop.products.write_text("item,kind\n")
    shop.next(ITEMS)
    assert shop.update(accept=["gate"]).version == 5
    assert shop.ranked() == {*ITEMS, "i12"}  # as the table has no row of the latest items
