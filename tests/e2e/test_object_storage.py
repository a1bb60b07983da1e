"""Workspaces on object storage: a real S3 server, one that fails every tenth request, kills and races of uploads."""

import gzip
import io
import json
import os
import random
import signal
import subprocess
import sys
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.etl import read_parts
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import Workspace
from recsys_cli.workspace.mirror import Head, Mirror, mirror_folder
from tests.forked import program
from tests.object_store import BUCKET, environment, flaky, s3_server
from tests.servers import until

pytestmark = pytest.mark.slow
CONFIG = """
dataset: {name: synthetic, users: 200, items: 100, rows: 8000}
split: {method: random, valid: 0.15, test: 0.15}
features:
  user: userId
  item: movieId
  label: label
  ops:
    - {op: Categorify, columns: [userId, movieId]}
    - {op: LambdaOp, expression: "rating > 3", output: label, dtype: int8}
model: {name: mf}
train: {epochs: 2, batch_size: 512, device: cpu}
evaluate: {k: [10], bootstrap: 20}
"""
WRITERS = """
import os, signal, sys, time
from pathlib import Path
import s3fs
from recsys_cli.workspace import Workspace
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    mirror, address, name, text, go = line.split()
    if os.fork() == 0:
        os.environ["RECSYS_S3_MIRROR"] = mirror
        workspace = Workspace(address)
        print(os.getpid(), flush=True)
        while not Path(go).exists():
            time.sleep(0.0005)
        with workspace.create(workspace.data(name), {"key": name, "dataset": text, "rows": {}}) as folder:
            (folder / "train").mkdir()
            for number in range(12):
                (folder / "train" / f"{number:05}.parquet").write_bytes(f"{text} {number} ".encode() * 20_000)
        print("done", flush=True)
        os._exit(0)
"""
"""Makes a process for each line of its input, which creates an artifact as soon as a file exists."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture
def bucket(server, monkeypatch, request):
    """The address of an empty workspace; this process reads it, too."""
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{request.node.name}"


class Machine:
    """A machine with a mirror of its own."""

    def __init__(self, folder: Path, address: str, url: str | None = None) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "x.yaml").write_text(CONFIG)
        self.folder, self.address = folder, address
        self.environment = {
            **os.environ, **(environment(url) if url else {}), "RECSYS_S3_MIRROR": str(folder / "mirrors"), "OMP_NUM_THREADS": "1",
        }  # fmt: skip

    @property
    def mirror(self) -> Path:
        return self.folder / "mirrors" / mirror_folder(self.address).name

    def run(self, *line: str, code: int = 0) -> str:
        done = subprocess.run(
            [program(), "--workspace", self.address, *line], cwd=self.folder, env=self.environment, text=True, capture_output=True,
            check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == code, f"{line}: {done.stdout}\n{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    def json(self, *line: str) -> dict:
        return json.loads(self.run("--json", *line))

    def files(self, part: str = "") -> dict[str, bytes]:
        """Return the files of the mirror, or of an artifact."""
        found = (path for kind in ("raw", "data", "runs") for path in (self.mirror / kind).rglob("*") if path.is_file())
        named = {path.relative_to(self.mirror).as_posix(): path.read_bytes() for path in found}
        return {name: content for name, content in named.items() if name.startswith(part)}


class Writers:
    """Processes that create an artifact, each with a mirror of its own."""

    def __init__(self, folder: Path, address: str, url: str) -> None:
        self.folder, self.address = folder, address
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **environment(url)},
        )  # fmt: skip

    def start(self, mirror: str, key: str, text: str) -> int:
        """Start a process, ready to create an artifact; return its id."""
        (self.folder / "go").unlink(missing_ok=True)
        print(self.folder / mirror, self.address, key, text, self.folder / "go", file=self._process.stdin, flush=True)
        return int(next(line for line in self._process.stdout if line != "done\n"))

    def go(self) -> None:
        (self.folder / "go").touch()

    def wait(self) -> None:
        assert self._process.stdout.readline() == "done\n"

    def __enter__(self) -> "Writers":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def objects(address: str) -> set[str]:
    """Return the names in the store, without the heads."""
    return set(Mirror(Path("unused"), address)._list("files"))


def newest(address: str) -> Head:
    return Mirror(Path("unused"), address)._newest()


def named_by(head: Head) -> set[str]:
    return {f"files/{upload}/{name}" for name, (_, _, upload) in head.files.items()}


def test_another_machine_goes_on_with_all_artifacts(tmp_path, bucket):
    first, other = Machine(tmp_path / "one", bucket), Machine(tmp_path / "two", bucket)
    first.run("run", "x.yaml")
    shown = other.json("status")
    assert [run["state"] for run in shown["runs"]] == ["evaluated"]
    assert shown["current"]["next"] == f"recsys -w {bucket} report"
    assert not list(other.mirror.rglob("*.parquet"))  # manifests and small files only
    for line in (("etl",), ("train",), ("evaluate",)):
        assert other.json(*line)["up_to_date"], line
    assert not list(other.mirror.rglob("*.parquet"))
    answers = [machine.json("recommend", "--user", "5", "--k", "3") for machine in (first, other)]
    assert answers[0] == answers[1]
    other.run("export", "mf", "--out", "bundle")
    of_run = first.files("runs/")
    assert {name: content for name, content in of_run.items() if name in other.files("runs/")} == other.files("runs/")
    assert set(of_run) - set(other.files("runs/")) <= {
        name for name in of_run if "/tensorboard/" in name or "last" in name
    }
    assert first.files("data/") == other.files("data/")
    other.run("evaluate", "evaluate.split=valid")
    assert first.json("report")["facts"]["split"] == "valid"  # what the other has written


def test_every_tenth_request_fails_and_no_command(tmp_path, bucket, server):
    with flaky(server) as proxy:
        first, other = Machine(tmp_path / "one", bucket, proxy.url), Machine(tmp_path / "two", bucket, proxy.url)
        first.run("run", "x.yaml")
        assert other.json("recommend", "--user", "5", "--k", "3")["items"]
        assert proxy.failures >= 8
    assert other.files("data/") == first.files("data/")
    assert objects(bucket) == named_by(newest(bucket)) | {
        name for name in objects(bucket) if name.endswith("current.yaml")
    }


@pytest.fixture
def opened(tmp_path, bucket, monkeypatch):
    """Open the workspace with the mirror of a name; return who has written the artifact of a key, after checks, or None."""

    def open_(mirror: str, key: str) -> str | None:
        monkeypatch.setenv("RECSYS_S3_MIRROR", str(tmp_path / mirror))
        data = Workspace(bucket).data(key)
        if not data.exists:
            return None
        data.verify()
        texts = [path.read_text().split(" ")[0] for path in data.shards("train")]
        assert texts == [data.manifest["dataset"]] * 12
        return texts[0]

    return open_


def test_a_killed_upload_is_absent_or_whole_and_leaves_nothing(tmp_path, bucket, server, opened):
    """Kills at random requests of 40 uploads; another machine looks at once, then the next command cleans up."""
    drawn, whole, killed, left = random.Random(31), [], 0, 0
    with flaky(server) as proxy, Writers(tmp_path, bucket, proxy.url) as writers:
        proxy.failure = lambda number: None
        for number in range(40):
            key, text, mirror = f"{number:02}" * 8, f"text{number}", f"mirror{number % 4}"
            process, is_done = writers.start(mirror, key, text), drawn.choice([None, "closed"])
            last = drawn.choice([drawn.randint(1, 13), drawn.randint(14, 17)])  # half of them near the head

            def failure(request: int, process=process, last=last, is_done=is_done):
                if request == last:
                    os.kill(process, signal.SIGKILL)
                    return is_done
                return None

            proxy.numbers, proxy.failure = count(1), failure
            writers.go()
            until(lambda process=process: not Path(f"/proc/{process}").exists(), seconds=60)
            proxy.failure = lambda number: None
            killed += next(proxy.numbers) > last
            seen = opened(f"reader{number}", key)
            left += objects(bucket) != named_by(newest(bucket))
            again = opened(mirror, key)
            assert {seen, again} <= {None, text}
            assert again == text  # the artifact was complete in the mirror
            whole.append(seen is not None)
            assert objects(bucket) == named_by(newest(bucket))
    assert killed >= 30
    assert 3 < sum(whole) < 37, whole  # kills before and after the head
    assert left > 10  # files without a head, which the next command has named or removed


def test_of_two_writers_at_once_one_is_whole(tmp_path, bucket, server, opened):
    with Writers(tmp_path, bucket, server) as writers:
        for number in range(12):
            key, texts = f"{number:02}" * 8, (f"one{number}", f"two{number}")
            for text in texts:
                writers.start(f"mirror-{text[:3]}", key, text)
            writers.go()
            writers.wait()
            writers.wait()
            (seen,) = {opened(mirror, key) for mirror in (f"reader{number}", "mirror-one", "mirror-two")}
            assert seen in texts
            assert objects(bucket) == named_by(newest(bucket))


def test_outputs_of_spark_are_read_in_place(tmp_path, bucket):
    """A folder with _SUCCESS, a Hive table, parts of csv, and globs: the same rows in a bucket and on a disk."""
    machine, system = Machine(tmp_path, f"{bucket}/workspace"), fsspec.filesystem("s3")
    rows = pa.table(
        {"user": [n % 40 for n in range(800)], "item": [n * 7 % 90 for n in range(800)], "time": [*range(800)]}
    )
    for number in range(4):
        part, place = (
            rows.slice(number * 200, 200),
            f"day=2026-01-{number // 2 + 1:02}/land=" + ("__HIVE_DEFAULT_PARTITION__", "a%2Fb")[number % 2],
        )
        for name in (f"spark/part-{number:05}-c000.snappy.parquet", f"hive/{place}/part-{number:05}.parquet"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(part, tmp_path / name)
        text = "user,item,time\n" + "".join(
            f"{u},{i},{t}\n" for u, i, t in zip(*part.to_pydict().values(), strict=True)
        )
        for name in (f"csv/part-{number:05}.csv.gz", f"hive-csv/{place}/part-{number:05}.csv.gz"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    for folder in ("spark", "hive", "csv", "hive-csv"):
        for mark in ("_SUCCESS", "._SUCCESS.crc", "_committed_7", "_temporary/0/part-00009.parquet"):
            (tmp_path / folder / mark).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / mark).write_bytes(b"mark")
        system.put(str(tmp_path / folder), f"{bucket}/{folder}", recursive=True)
    vocabularies = {}
    for place in ("", f"{bucket}/"):
        for path in (
            "spark",
            "spark/*",
            "hive/",
            "hive/day=*/land=*/part-*.parquet",
            "csv",
            "csv/part-*.csv.gz",
            "hive-csv",
        ):
            machine.run("init", f"{place}{path}", "--out", "found.yaml", "--force")
            text = (tmp_path / "found.yaml").read_text()
            has_land = path in {"hive/", "hive-csv"}
            (tmp_path / "found.yaml").write_text(
                text.replace("[user, item]", "[user, item, land]") if has_land else text
            )
            made = machine.json("etl", "found.yaml")
            assert sum(made["rows"].values()) == 800, path
            vocabularies[place, path] = made["vocabularies"]
            assert made["vocabularies"].get("land") == (1 if has_land else None)
    assert all(found == vocabularies["", path] for (_, path), found in vocabularies.items())


@pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed")
def test_workers_read_parts_of_objects(tmp_path, bucket, monkeypatch):
    """Ranges of text and row groups of Parquet by glob, on workers, are the same bytes as local files on threads."""
    lines = [f"{n % 37},{n * 7 % 61},{n % 5 + 1},{1_600_000_000 + n}" for n in range(4_000)]
    table = pa_csv.read_csv(io.BytesIO("\n".join(["user,item,rating,time", *lines]).encode()))
    (tmp_path / "tables").mkdir()
    for number in range(2):
        part = table.slice(number * 2_000, 2_000)
        pa_csv.write_csv(part, tmp_path / f"tables/part-{number}.csv")
        pq.write_table(part, tmp_path / f"tables/part-{number}.parquet", row_group_size=300)
    store = fsspec.filesystem("s3", skip_instance_cache=True)
    store.put(f"{tmp_path}/tables/", f"{bucket}/plays/day=1/", recursive=True)
    monkeypatch.setattr(read_parts, "PART_CHUNKS", 1e-4)
    for kind in ("csv", "parquet"):
        found = []
        for files, cluster in ((f"{bucket}/plays/day=*/part-*.{kind}", "local"), (f"{tmp_path}/tables/*.{kind}", None)):
            config = RunConfig.model_validate({
                "dataset": {"name": "files", "interactions": files},
                "split": {"method": "temporal"},
                "features": {
                    "user": "user", "item": "item", "label": "label", "timestamp": "time",
                    "ops": [
                        {"op": "Categorify", "columns": ["user", "item"]},
                        {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
                    ],
                },
                "etl": {"cluster": cluster, "workers": 2, "shard_rows": 200},
            })  # fmt: skip
            made = etl(config, Workspace(tmp_path / f"{kind}-{cluster}")).artifact
            found.append({path.name: path.read_bytes() for path in made.folder.rglob("*.parquet")})
        assert found[0] == found[1]
