"""`recsys forget`: no file has the id in any encoding, all artifacts verify, other ids stay, and a kill loses nothing."""

import contextlib
import gzip
import json
import random
import shutil
import sqlite3
import struct
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from recsys_cli.cli import app
from recsys_cli.etl.forgotten import Forgotten, rewrite
from recsys_cli.evaluation.new_users import ColdItems
from recsys_cli.features.hashing import hash_value
from recsys_cli.features.schema import Role
from recsys_cli.ops.values import Values
from recsys_cli.ops.vocabulary import Encoder, VocabularyIndex
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.feedback.log import FeedbackLog, exclusive, worker_file
from recsys_cli.serving.feedback.state import Event, FeedbackState
from recsys_cli.workspace import Workspace
from tests.forked import Forked

USER, ITEM = 918273645, "tombola-zq77x"
CONFIG = """
dataset:
  name: files
  interactions: {query: SELECT * FROM ratings, database: SHOP}
  tables: {things: things.csv}
split: {method: leave-last-out}
features:
  user: visitor
  item: product
  label: label
  timestamp: at
  ops:
    - {op: JoinExternal, table: things, on: product, columns: [kind]}
    - {op: LambdaOp, expression: stars > 3, output: label, dtype: int8}
    - {op: TargetEncoding, columns: [visitor, [visitor, product]], target: label}
    - {op: Categorify, columns: [visitor, product, kind]}
model: {name: ease}
train: {epochs: 1, device: cpu}
evaluate: {k: [5], bootstrap: 20, title: name}
"""
EVENTS = [
    {"kind": "put", "user": USER, "item": "it001", "label": 1.0},
    {"kind": "put", "user": f"0{USER}", "item": "it003"},
    {"kind": "hide", "item": ITEM},
    {"kind": "put", "user": 1001, "item": "it004"},
]
NEEDLES = (
    str(USER).encode(), *(struct.pack(form, USER) for form in ("<q", "<i", "<d", "<f")), struct.pack("<Q", hash_value(USER)),
    ITEM.encode(), struct.pack("<Q", hash_value(ITEM)),
)  # fmt: skip


def line(*words, code=0):
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == code, (words, found.output, found.exception)
    return found.stdout


def shop(folder: Path, *, without: bool = False) -> None:
    """Write a database of ratings, with or without the user, and run all stages."""
    draw = random.Random(0)
    users, items = [USER, *range(1000, 1030)], [ITEM, *(f"it{number:03}" for number in range(24))]
    rows = [
        (draw.choice(users), draw.choice(items[:22]), draw.choice([2.0, 5.0]), 1_600_000_000 + 60 * at)
        for at in range(900)
    ]
    rows = [row for row in rows if not without or row[0] != USER]
    things = [f"{one},Thing {one[::-1]},{'abc'[at % 3]}" for at, one in enumerate(items)]
    (folder / "things.csv").write_text("\n".join(["product,name,kind", *things]) + "\n")
    with closing(sqlite3.connect(folder / "shop.db")) as database, database:
        database.execute("CREATE TABLE ratings (visitor integer, product text, stars real, at integer)")
        database.executemany("INSERT INTO ratings VALUES (?, ?, ?, ?)", rows)
    (folder / "shop.yaml").write_text(CONFIG)
    line("-q", "run", "shop.yaml")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A workspace with raw copies, data, three models, evaluations, exports, recommendations and feedback of the ids."""
    pytest.importorskip("adbc_driver_sqlite", reason="ADBC is not installed (pip install 'recsys-cli[lake]')")
    folder = tmp_path_factory.mktemp("forget")
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setenv("SHOP", "shop.db")
        shop(folder)
        for model in ("mf", "sasrec"):
            line("-q", "run", "shop.yaml", f"model.name={model}")
        for model, suffix in (("ease", "csv"), ("mf", "jsonl"), ("sasrec", "parquet")):
            line("-q", "export", model)
            line("-q", "recommend", model, "--all", "--explain", "--out", f"workspace/{model}.{suffix}")
        for name in ("published/shop/versions", "published/shop/deltas"):
            Path("workspace", name).mkdir(parents=True)
        line("-q", "export", "mf", "--out", "workspace/published/shop/versions/000001", "--tables", "int8")
        Path("workspace/published/shop/deltas/000001.delta").write_bytes(NEEDLES[1])
        log = FeedbackLog(worker_file(Path("workspace/feedback"), 0), fsync="never", state=FeedbackState())
        for at, event in enumerate(EVENTS):
            log.append(Event(at=at + 1, **event).line(), lambda _: None)
        log.close()
    return folder


@pytest.fixture
def copy(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP", "shop.db")
    return tmp_path / "workspace"


def mentions(folder: Path) -> list[str]:
    """Return the files with an id in any encoding, in their bytes or in their values."""

    def contents(path):
        yield path.read_bytes()
        if path.suffix == ".parquet":
            for column in pq.read_table(path).columns:
                yield from (buffer.to_pybytes() for chunk in column.chunks for buffer in chunk.buffers() if buffer)

    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [str(path) for path in files if any(needle in content for content in contents(path) for needle in NEEDLES)]


def check(workspace: Path) -> None:
    """Check that no file has the ids, and that all artifacts verify."""
    assert mentions(workspace) == []
    opened = Workspace(workspace)
    for artifact in (*opened.all_raw(), *opened.all_data(), *opened.runs()):
        artifact.verify()
    for bundle in (*workspace.glob("bundles/*"), *workspace.glob("published/*/versions/*")):
        load_bundle(bundle, verify=True)


def test_no_file_has_the_ids_and_all_commands_go_on(copy):
    assert len(mentions(copy)) > 20
    before = {path.name: pq.read_table(path)["value"].to_pylist() for path in copy.glob("data/*/vocab/*.parquet")}
    asked = ("forget", "--user", f"0{USER}.0", "--item", ITEM)
    assert "nothing changed: --dry-run" in line(*asked, "--dry-run")
    assert len(mentions(copy)) > 20
    shown = line(*asked)
    assert "fitted again, as without the rows" in shown
    assert "only a new training removes what other weights learned" in shown
    assert [one.split()[-2:] for one in shown.splitlines() if one.startswith("things.csv")] == [["things.csv", "yes"]]
    assert "bring the ids back" in shown
    check(copy)
    for path in copy.glob("data/*/vocab/*.parquet"):
        kept = [None if value in {USER, ITEM} else value for value in before[path.name]]
        assert pq.read_table(path)["value"].to_pylist() == kept
    assert "no place has the ids" in line(*asked)

    for model in ("ease", "mf", "sasrec"):
        line("-q", "evaluate", model)
        line("-q", "export", model, "--force")
        line("-q", "recommend", model, "--all", "--out", f"workspace/{model}.csv", "--force")
        assert "the most popular items instead" in line("recommend", model, "--user", USER)
        assert "rank" in line("recommend", model, "--user", 1001)
        assert ITEM not in line("recommend", model, "--user", 1001, "--k", 30)
    assert "up to date" in line("etl", "shop.yaml")
    check(copy)
    (known,) = copy.glob("data/*/vocab/visitor.parquet")
    Path("grown.yaml").write_text(CONFIG.replace("product, kind]}", f"product, kind], vocabs: {{visitor: {known}}}}}"))
    line("-q", "etl", "grown.yaml")
    grown = {
        str(pq.read_table(path)["value"]) for path in copy.glob("d*/**/visitor.parquet") if "state" not in path.parts
    }
    assert "null" in grown.pop()
    assert not grown
    shutil.rmtree(copy)


def test_a_closed_form_model_is_that_of_a_fit_without_the_rows(copy, tmp_path, monkeypatch):
    def scores():
        found = line("--json", "recommend", "ease", "--user", 1001, "--k", 20)
        return {one["item"]: one["score"] for one in json.loads(found)["items"]}

    line("-q", "forget", "--user", USER)
    corrected = scores()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    shop(tmp_path / "other", without=True)
    fitted = scores()
    assert corrected.keys() == fitted.keys()
    np.testing.assert_allclose([corrected[one] for one in fitted], list(fitted.values()), atol=1e-5)


def test_users_and_items_outside_train_leave_the_held_out_rows_and_the_catalog(recsys, tmp_path):
    rows = [f"{user},it{at % 5},5,{at}" for at, user in enumerate([*range(1000, 1040)] * 3)]
    late = [f"{USER},it{at},5,{900 + at}" for at in range(5)]
    (tmp_path / "r.csv").write_text("\n".join(["visitor,product,stars,at", *rows, *late, f"1000,{ITEM},5,990"]) + "\n")
    (tmp_path / "things.csv").write_text(f"product,name,kind\n{ITEM},One,a\nit0,Two,b\nlater,Three,b\n")
    config = CONFIG.replace("{query: SELECT * FROM ratings, database: SHOP}", "r.csv").replace(
        "leave-last-out", "temporal"
    )
    (tmp_path / "shop.yaml").write_text(config)
    assert recsys("-q", "etl", "shop.yaml").code == 0
    (data,) = Workspace(tmp_path / "workspace").all_data()
    cold, before = ColdItems.of(data), data.rows("test")
    assert mentions(data.folder)
    shown = recsys("forget", "--user", USER, "--item", ITEM).out
    assert "ids and 6 rows removed" in shown
    assert [one.split()[-1] for one in shown.splitlines() if one.startswith(("r.csv", "things.csv"))] == ["yes", "yes"]
    check(tmp_path / "workspace")
    assert data.rows("test") == before - 6
    assert len(ColdItems.of(data).rows) == cold.number - 1


@pytest.mark.slow
def test_kills_at_any_moment_are_finished_by_the_next_call(copy, tmp_path):
    draw, killed = random.Random(4), 0
    with Path("out").open("w") as out:
        for _ in range(40):
            process = Forked(["forget", "--user", str(USER), "--item", ITEM], streams=(out.fileno(),) * 3, cwd=tmp_path)
            time.sleep(draw.uniform(0.05, 0.7))
            process.kill()
            killed += process.wait() < 0
    assert killed > 10  # on a quiet machine more of them come to their end
    line("forget", "--user", USER, "--item", ITEM)
    check(copy)
    assert any("workspace/feedback" in path.read_text() for path in copy.glob("forgotten/*.json"))


def test_a_server_and_wrong_lines_are_refused(copy):
    with exclusive(copy / "feedback"):
        line("forget", "--user", USER, code=2)
    assert len(mentions(copy)) > 20
    with Workspace(copy).lock("etl"):
        line("forget", "--user", USER, code=2)
    for words in ((), ("--user", ""), ("nowhere", "--user", "1")):
        line("forget", *words, code=2)


def forgotten(*, numeric: bool) -> Forgotten:
    ids, names = {Role.USER: ("11",), Role.ITEM: ('a"b',)}, {Role.USER: {"u"}, Role.ITEM: {"i"}}
    return Forgotten(ids, names, {Role.USER} if numeric else set())


@pytest.mark.parametrize(
    ("name", "content", "kept", "number"),
    [
        ("a.csv", 'u,i\n011,x\n11.0,x\n1,11\n111,"a""b"\n2,"x\n11"\n', 'u,i\n1,11\n2,"x\n11"\n', 3),
        ("a.tsv", "i\tu\nx\t11\nx\t12\n", "i\tu\nx\t12\n", 1),
        ("a.jsonl", '{"u":"11"}\n{"u":12,"n":11}\n{"i":"a\\"b"}\n', '{"u":12,"n":11}\n', 2),
        ("a.txt", "u\n11\n", None, 0),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_rows_of_text_go_by_the_column_of_the_id(tmp_path, name, content, kept, number, suffix):
    source, target = tmp_path / f"{name}{suffix}", tmp_path / "made"
    source.write_bytes(gzip.compress(content.encode()) if suffix else content.encode())
    assert rewrite(source, target, forgotten(numeric=True)) == number
    if kept is not None:
        assert (gzip.decompress(target.read_bytes()) if suffix else target.read_bytes()).decode() == kept


def test_text_ids_and_lists(tmp_path):
    path, made = tmp_path / "u.csv", tmp_path / "made"
    path.write_text("u,i\n11,x\n011,y\n")
    assert rewrite(path, made, forgotten(numeric=False)) == 1
    assert made.read_text() == "u,i\n011,y\n"
    pq.write_table(pa.table({"u": [11, 12], "i": [["x"], ["y", 'a"b']]}), tmp_path / "t.parquet")
    assert rewrite(tmp_path / "t.parquet", made, forgotten(numeric=False)) == 2
    assert pq.read_table(made).to_pylist() == [{"u": 12, "i": ["y", None]}]


@pytest.mark.parametrize(
    "values", [[5, 0, 7, 1 << 40], ["five", "", "seven", "a long text of 8"], [5.0, 0.0, 7.0, 1.5]]
)
def test_nothing_matches_a_forgotten_value(values):
    gone = [values[0], None, values[2], None]
    expected = [3, 2, 5, 2]
    index = VocabularyIndex.build(pa.array(gone))
    assert index.encode(Values(np.array(values, dtype=object))).data.tolist() == expected
    encoder = Encoder(pa.table({"value": pa.array(gone)}))
    assert encoder(pa.array(values)).tolist() == expected
    assert encoder(pa.array([*values, None]), num_buckets=1).tolist() == [3, 7, 5, 7, 1]
    assert len(index) == len(gone)
