"""Bundles: loaded elsewhere and without the ETL, verified, damaged, with and without histories."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.torch import save_file

import recsys_cli as recsys
from recsys_cli.errors import ConfigError, DataError, MissingArtifactError
from recsys_cli.models.retrieval.factorization import Graph
from recsys_cli.ops.vocabulary import VocabularyIndex
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.encoder import RowEncoder
from recsys_cli.serving.query import Query
from recsys_cli.stages.export import TOLERANCE
from tests.served_runs import COLLABORATIVE, MakeRun, ratings

FRESH = """
import json, sys
class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pandas", "scipy", "polars", "dask", "nvtabular", "merlin", "typer", "rich"}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, NotInstalled())
import recsys_cli as recsys
bundle = recsys.load_bundle(sys.argv[1], verify=True)
rows = bundle.recommend([1, 2, 3], k=4).table.to_pylist()
scores = bundle.score({"userId": [1, 2, 999], "movieId": [5, 999, 5]}).tolist()
loaded = sorted(name for name in sys.modules if name.startswith(("recsys_cli.etl", "recsys_cli.cli", "recsys_cli.training")))
print(json.dumps({"rows": rows, "scores": scores, "loaded": loaded}))
"""


@pytest.fixture(scope="module", params=["mf", "ease", "fm", COLLABORATIVE])
def bundle(request: pytest.FixtureRequest, make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recsys.export(make_run(request.param), tmp_path_factory.mktemp("bundles") / request.param, progress=False)


def test_a_moved_bundle_answers_in_a_process_without_dataframes_scipy_and_etl(bundle: Path, tmp_path: Path) -> None:
    expected = recsys.load_bundle(bundle)
    moved = shutil.copytree(bundle, tmp_path / "a b" / "moved")
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(moved)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == expected.recommend([1, 2, 3], k=4).table.to_pylist()
    assert found["scores"] == expected.score({"userId": [1, 2, 999], "movieId": [5, 999, 5]}).tolist()
    assert found["loaded"] == []


def test_calls_of_several_threads_have_the_answers_of_one(make_run: MakeRun, tmp_path: Path) -> None:
    """Filters and other parts are kept between calls, and were taken out by another thread."""
    folder = recsys.export(make_run("ease"), tmp_path / "ease", verify=False, progress=False)
    queries = [Query(user=n % 60, k=5, where=f"year > {1980 + n % 40}", diversity=n % 3 / 5) for n in range(480)]
    alone, shared = recsys.load_bundle(folder), recsys.load_bundle(folder)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda query: shared.answer([query]), queries))
    finally:
        sys.setswitchinterval(before)
    assert found == [alone.answer([query]) for query in queries]


def test_weights_and_histories_are_memory_mapped(bundle: Path) -> None:
    recommender = load_bundle(bundle)
    maps = Path("/proc/self/maps").read_text()
    assert str(bundle / "weights.safetensors") in maps
    assert isinstance(recommender.served.histories.items, np.memmap)


def test_raw_rows_score_as_by_the_run(bundle: Path, make_run: MakeRun) -> None:
    rows = (
        ratings()
        .head(200)
        .vstack(ratings().head(3).with_columns(userId=pl.lit(999), movieId=pl.lit(44)).cast(ratings().schema))
    )
    by_run = make_run(bundle.name).score(rows)
    np.testing.assert_allclose(recsys.load_bundle(bundle).score(rows), by_run, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "name",
    ["weights.safetensors", "model.json", "counts.npy", "histories/items.npy", "data/schema.json", "titles.parquet",
     "vocab-index/userId/hashes.npy", "data/vocab/movieId.parquet"],
)  # fmt: skip
@pytest.mark.parametrize("how", ["flipped", "short", "missing"])
def test_a_damaged_file_is_named(name: str, how: str, bundle: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bundle, tmp_path / "damaged")
    path = folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.unlink()
    if how != "missing":
        path.write_bytes(content[: len(content) // 2] if how == "short" else content)
    with pytest.raises(MissingArtifactError if how == "missing" else DataError, match=Path(name).name) as raised:
        load_bundle(folder)
    assert raised.value.hint == "recsys export RUN --force"


def test_a_folder_without_a_manifest_is_no_bundle(tmp_path: Path, make_run: MakeRun) -> None:
    with pytest.raises(MissingArtifactError, match="is no bundle"):
        load_bundle(tmp_path)
    with pytest.raises(DataError, match="TrainedRun, not a bundle"):
        load_bundle(make_run("mf").folder)


def test_without_histories_a_bundle_holds_no_interactions(make_run: MakeRun, tmp_path: Path) -> None:
    folder = recsys.export(make_run("ease"), tmp_path / "ease", histories=False, progress=False)
    recommender = load_bundle(folder)
    assert len(recommender.served.histories.items) == 0
    known, folded = recommender.recommend([Query(user=1), Query(user=1, history=[1, 2, 3])])
    assert (known.source, folded.source) == ("popularity", "fold-in")
    assert "has no history" in str(known.note)
    with pytest.raises(ConfigError, match="lightgcn reads the user histories"):
        recsys.export(make_run("lightgcn"), tmp_path / "lightgcn", histories=False, progress=False)


def test_an_existing_folder_is_replaced_only_on_request(make_run: MakeRun, tmp_path: Path) -> None:
    folder = recsys.export(make_run("mf"), tmp_path / "mf", progress=False)
    before = (folder / "manifest.json").read_text()
    with pytest.raises(ConfigError, match="already exists"):
        recsys.export(make_run("mf"), folder, progress=False)
    recsys.export(make_run("mf"), folder, progress=False, force=True, verify=False)
    assert json.loads((folder / "manifest.json").read_text())["files"].keys() == json.loads(before)["files"].keys()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("precious")
    with pytest.raises(ConfigError, match="no bundle"):
        recsys.export(make_run("mf"), tmp_path / "mine", progress=False, force=True)
    assert (tmp_path / "mine" / "letter.txt").read_text() == "precious"


def test_verification_finds_other_weights(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recsys_cli.serving import bundle_writer

    def shifted(tensors: dict[str, object], path: Path) -> None:
        save_file({name: tensor + 0.01 for name, tensor in tensors.items()}, path)  # type: ignore[operator]

    monkeypatch.setattr(bundle_writer, "save_file", shifted)
    with pytest.raises(DataError, match=r"row \d+ of the sample scores .* by the run: .*movieId=\d+"):
        recsys.export(make_run("mf"), tmp_path / "mf", progress=False)
    assert TOLERANCE == 1e-5


def test_the_card_and_the_signature_describe_the_model(bundle: Path) -> None:
    signature = json.loads((bundle / "signature.json").read_text())
    assert {one["name"] for one in signature["inputs"]} == {"userId", "movieId"}
    assert (bundle / "model_card.md").read_text().startswith(f"# {bundle.name.partition(' ')[0]}: ")
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["kind"] == "Bundle"
    assert manifest["run"]["name"].endswith(manifest["run"]["key"][:8])


def test_a_loaded_bundle_builds_and_propagates_nothing_on_request(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    for owner, name in ((VocabularyIndex, "build"), (RowEncoder, "__init__"), (Graph, "propagate")):
        monkeypatch.setattr(owner, name, _counted(getattr(owner, name), name, built))
    folder = recsys.export(make_run("lightgcn"), tmp_path / "lightgcn", progress=False)
    built.clear()
    recommender = load_bundle(folder)
    assert sorted(built) == ["__init__", "propagate"]
    assert {"userId", "movieId", "genres", "year"} <= recommender.served.indexes.keys()
    recommender.score({"userId": [1, 999], "movieId": [5, 44]})
    recommender.recommend([Query(user=1, k=3)])
    assert sorted(built) == ["__init__", "propagate"]


def _counted(real: Callable[..., Any], name: str, calls: list[str]) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return real(*args, **kwargs)

    return counted
