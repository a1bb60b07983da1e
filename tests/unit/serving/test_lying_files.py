"""Files of a bundle with valid checksums and wrong content: the load ends with an error that names the file."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import recsys_cli as recsys
from recsys_cli.cli import app
from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.features.columns import SHARED_ID
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.workspace import read_json, write_manifest
from tests.served_runs import MakeRun

Array = np.ndarray[Any, Any]
ARRAYS: Mapping[str, Callable[[Array], Array]] = {
    "float": lambda values: values.astype(np.float32),
    "short": lambda values: values[:-1],
    "descending": lambda values: values[::-1].copy(),
    "large": lambda values: np.where(np.arange(len(values)) == 1, np.iinfo(values.dtype).max, values),
    "negative": lambda values: np.where(np.arange(len(values)) == 1, -5, values),
    "nested": lambda values: values[None],
    "scalar": lambda values: values[0],
    "text": lambda values: values.astype(str),
    "empty": lambda values: values[:0],
}
OFFSETS = ("float", "short", "descending", "large", "negative")
IDS = ("float", "short", "large", "negative")
TABLES: Mapping[str, Callable[[pa.Table, int], pa.Table]] = {
    "short": lambda table, _: table.slice(1),
    "without": lambda table, place: table.remove_column(place),
    "text": lambda table, place: _with(table, place, ["x"] * len(table)),
    "null": lambda table, place: _with(table, place, [None] * len(table)),
    "list": lambda table, place: _with(table, place, [[1]] * len(table)),
    "large": lambda table, place: _with(table, place, [10**12] * len(table)),
    "negative": lambda table, place: _with(table, place, [-7] * len(table)),
}


def _with(table: pa.Table, place: int, values: list[Any]) -> pa.Table:
    return table.set_column(place, table.column_names[place], pa.array(values))


@pytest.fixture(scope="module")
def sound(make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recsys.export(make_run("fm"), tmp_path_factory.mktemp("sound") / "fm", progress=False)


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "lying")


def _refused(folder: Path, name: str) -> None:
    """Sign a bundle again, and check the error of its load."""
    for artifact, kind in ((folder / "data", "PreparedData"), (folder, "Bundle")):
        manifest = json.loads((artifact / "manifest.json").read_text())
        kept = {key: value for key, value in manifest.items() if key not in {"files", "checksum"}}
        write_manifest(artifact, kind, kept)
    with pytest.raises(DataError) as raised:
        load_bundle(folder)
    assert name in raised.value.message
    assert raised.value.hint == "recsys export RUN --force"
    words = ("\n", "pydantic", "state_dict", "torch.Size", "type=", "pickle", "KeyError")
    assert not [word for word in words if word in raised.value.message], raised.value.message


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *(("vocab-index/userId/hashes.npy", how) for how in ("float", "short", "descending")),
        *(("vocab-index/userId/positions.npy", how) for how in IDS),
        *(("vocab-index/genres/offsets.npy", how) for how in OFFSETS),
        *(("vocab-index/genres/bytes.npy", how) for how in ("float", "short")),
        *(("histories/offsets.npy", how) for how in (*OFFSETS, "empty")),
        *(("histories/items.npy", how) for how in (*IDS, "scalar")),
        *(("counts.npy", how) for how in ("float", "short", "negative", "nested", "text")),
    ],
)
def test_an_array(name: str, how: str, folder: Path) -> None:
    np.save(folder / name, ARRAYS[how](np.load(folder / name)))
    named = name if how != "short" else name.rpartition("/")[0]  # the length may also be that of a neighbor
    _refused(folder, named)


@pytest.mark.parametrize(
    ("name", "column", "ways"),
    [
        ("data/vocab/genres.parquet", "value", ("short", "without")),
        ("data/vocab/userId.parquet", "value", ("short", "without")),
        ("data/tables/movieId.parquet", SHARED_ID, TABLES.keys() - {"without"}),
        ("data/tables/movieId.parquet", "genres", TABLES.keys() - {"list"}),
        ("data/tables/movieId.parquet", "year", TABLES),
        ("data/state/-3/movieId.parquet", "row", TABLES),
        ("titles.parquet", "title", ("short", "without", "list", "large")),
    ],
)
def test_a_table(name: str, column: str, ways: tuple[str, ...], sound: Path, tmp_path: Path) -> None:
    for how in ways:
        folder = shutil.copytree(sound, tmp_path / how)
        table = pq.read_table(folder / name)
        pq.write_table(TABLES[how](table, table.column_names.index(column)), folder / name)
        _refused(folder, name)


@pytest.mark.parametrize("how", ["short", "null", "text"])
def test_raw_ids(how: str, folder: Path) -> None:
    path = folder / "vocab-index" / "item.arrow"
    table = TABLES[how](pa.ipc.open_file(path).read_all(), 0)
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    _refused(folder, "vocab-index/item.arrow")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "typo"},
        {"options": {"embedding_dim": "x"}},
        {"options": {"more": 1}},
        {"placement": "x"},
        {"placement": 3},
        {"tables": "fp1"},
        {"batch_size": 0},
    ],
)
def test_the_description_of_the_model(change: dict[str, Any], folder: Path) -> None:
    path = folder / "model.json"
    values = json.loads(path.read_text()) | change
    path.write_text(json.dumps({key: value for key, value in values.items() if key != "checksum"}))
    _refused(folder, "model.json")


@pytest.mark.parametrize("name", ["weights.safetensors", "manifest.json", "counts.npy", "data/manifest.json", "extra"])
@pytest.mark.parametrize("to", ["/dev/zero", "/etc/hostname", "../nothing", ".", None], ids=str)
def test_a_link_or_a_pipe_is_refused_unread(name: str, to: str | None, folder: Path) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    path.symlink_to(to) if to else os.mkfifo(path)
    with pytest.raises((DataError, MissingArtifactError), match=r"is no plain file|has no manifest.json"):
        load_bundle(folder)


@pytest.mark.parametrize("name", ["../outside", "/dev/zero", "data/../../outside"])
def test_a_manifest_names_files_of_its_folder_only(name: str, folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = (1, "00000000")
    (folder / "manifest.json").write_text(json.dumps({key: manifest[key] for key in manifest.keys() - {"checksum"}}))
    with pytest.raises(DataError, match="which is not in the folder"):
        load_bundle(folder)


@pytest.mark.parametrize(
    ("model", "option"),
    [
        ("sasrec", "num_layers"),
        ("gru4rec", "num_layers"),
        ("lightgcn", "num_layers"),
        ("sasrec", "max_seq_len"),
        ("fm", "embedding_dim"),
    ],
)
def test_a_model_far_larger_than_its_weights_is_not_built(
    model: str, option: str, make_run: MakeRun, tmp_path: Path
) -> None:
    folder = recsys.export(make_run(model), tmp_path / "large", verify=False, progress=False)
    path = folder / "model.json"
    values = json.loads(path.read_text())
    values["options"][option] = 100_000
    path.write_text(json.dumps({key: values[key] for key in values.keys() - {"checksum"}}))
    started = time.perf_counter()
    _refused(folder, "model.json")
    assert time.perf_counter() < started + 30


@pytest.mark.parametrize(
    "name", ["counts.npy", "vocab-index/userId/hashes.npy", "histories/items.npy", "weights.safetensors"]
)
def test_an_empty_file(name: str, folder: Path) -> None:
    (folder / name).write_bytes(b"")
    _refused(folder, name)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite(value: float, folder: Path) -> None:
    path = folder / "weights.safetensors"
    weights = load_file(path)
    weights[max(weights)].flat[-1] = value
    save_file(weights, path)
    _refused(folder, "weights.safetensors: ")
    result = CliRunner().invoke(app, ["recommend", str(folder), "--user", "1", "-w", str(folder)])
    assert result.exit_code == DataError.exit_code, result.output


@pytest.mark.parametrize(
    "change",
    [
        lambda weights: {name: weights[name] for name in list(weights)[1:]},
        lambda weights: weights | {"model.more": np.zeros(3)},
        lambda weights: {name: np.repeat(values, 2, axis=0) for name, values in weights.items()},
    ],
    ids=["missing", "unknown", "shape"],
)
def test_weights_of_another_model(change: Callable[[dict[str, Array]], dict[str, Array]], folder: Path) -> None:
    path = folder / "weights.safetensors"
    save_file(change(load_file(path)), path)
    _refused(folder, "weights.safetensors: not the weights of this model: ")


@pytest.mark.parametrize("name", ["schema", "plan"])
@pytest.mark.parametrize("content", [b"{}", b"{{", b"[]", b"[" * 100_000, b"\xff"], ids=str)
def test_a_description_of_the_data(name: str, content: bytes, folder: Path) -> None:
    (folder / "data" / f"{name}.json").write_bytes(content)
    _refused(folder, "/data")


@pytest.mark.parametrize("name", ["vocab/genres.parquet", "state/1/genres%01rest.parquet"])
def test_a_table_without_content_is_named(name: str, folder: Path) -> None:
    (folder / "data" / name).write_bytes(b"nothing")
    _refused(folder, name)


@pytest.mark.parametrize(
    "name", ["manifest.json", "model.json", "signature.json", "data/schema.json", "data/plan.json"]
)
def test_json_of_gigabytes_is_not_read(name: str, folder: Path) -> None:
    os.truncate(folder / name, 1 << 36)
    with pytest.raises(DataError, match=f"{name}: 68,719,476,736 bytes are too many"):
        load_bundle(folder)
    with pytest.raises(DataError, match="68,719,476,736 bytes"):
        read_json(folder / name, hint="")


def test_weights_of_another_type(folder: Path) -> None:
    path = folder / "weights.safetensors"
    save_file({name: values.astype(np.float16) for name, values in load_file(path).items()}, path)
    _refused(folder, "weights.safetensors")
