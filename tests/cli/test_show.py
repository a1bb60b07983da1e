"""Read-only commands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from recsys_cli import registry
from recsys_cli.cli import catalog
from recsys_cli.cli.catalog import ListedKind
from recsys_cli.cli.status import _runs
from recsys_cli.config import load
from recsys_cli.config.load import dump_resolved, model_config_type
from recsys_cli.data import open_source
from recsys_cli.data.files import TableOptions
from tests.cli.conftest import drawn

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def test_ls_datasets_marks_downloaded_ones(recsys):
    recsys("-q", "download", "synthetic-small")
    answer = recsys("ls", "datasets")
    assert all(name in answer.out for name in registry.DATASETS)
    here = {row["name"]: row["here"] for row in recsys("ls", "datasets", "--json").json["datasets"]}
    assert here["synthetic-small"]
    assert not here["movielens-25m"]


@pytest.mark.parametrize("kind", list(ListedKind))
def test_ls_lists_and_explains_everything(recsys, kind):
    """The first and the last by their lines, and all by what these lines draw."""
    rows = recsys("ls", kind, "--json").json[kind]
    for row in (rows[0], rows[-1]):
        answer = recsys("ls", kind, row["name"])
        assert answer.code == 0
        assert answer.out.startswith(row["name"])
    draw = catalog._draw_protocol if kind == "protocols" else catalog._draw_one
    details = catalog._DETAILS.get(kind, lambda _: {})
    assert all(drawn(draw, row | details(row["name"]), 200).startswith(row["name"]) for row in rows)


def test_ls_configs_lists_included_configs(recsys):
    names = [Path(row["name"]).name for row in recsys("ls", "configs", "--json").json["configs"]]
    assert set(names) >= {path.name for path in CONFIGS.rglob("*.yaml")}


def test_validate_reports_valid_or_all_problems(recsys):
    demo = CONFIGS / "demo-labels.yaml"
    assert recsys("validate", demo).out == f"{demo} is valid\n"
    answer = recsys("validate", demo, "train.epoch=3", "model.hiden=[1]")
    assert answer.code == 2
    assert f"error: {demo}: 2 problems\n" in answer.err
    assert "train.epoch: unknown key (did you mean epochs?)" in answer.err
    assert "model.hiden: unknown key (did you mean hidden_dims?)" in answer.err


def test_config_prints_a_valid_config(recsys):
    demo = CONFIGS / "demo-labels.yaml"
    Path("full.yaml").write_text(recsys("config", demo, "train.epochs=3").out)
    config, expected = load(Path("full.yaml")), load(demo, ["train.epochs=3"])
    assert config.dataset.options == open_source("synthetic-small")._options.model_dump()  # type: ignore[attr-defined]
    assert config.model_copy(update={"dataset": expected.dataset}) == expected
    found = recsys("config", demo, "--json").json
    assert found["train"]["precision"] == "auto"
    assert found["model"].keys() - {"name", "embedding"} == model_config_type("mlp").model_fields.keys()


def test_config_prints_the_options_of_files_and_of_every_model(recsys, labelled):
    found = recsys("config", "ratings.yaml", "--json").json
    assert found["dataset"]["interactions"] == TableOptions(files=("ratings.csv",)).model_dump(mode="json")
    assert found["dataset"]["tables"] == {}
    for name in registry.MODELS:
        config = load(Path("ratings.yaml"), [f"model.name={name}"])
        model = yaml.safe_load(dump_resolved(config))["model"]
        options = model_config_type(name)()
        if hasattr(options, "for_split"):
            options = options.for_split(found["split"]["method"])
        expected = options.model_dump(mode="json")
        assert {key: value for key, value in model.items() if key not in {"name", "embedding"}} == expected
    assert recsys("config", "ratings.yaml", f"model.name={name}", "--json").json["model"] == model


def test_status_of_an_empty_workspace_says_how_to_begin(recsys):
    answer = recsys("status")
    assert answer.code == 0
    assert "workspace is empty" in answer.out
    assert "recsys download" in answer.out
    assert not Path("workspace").exists()


def test_status_has_the_next_command(recsys, prepared):
    found = recsys("status", "--json").json
    assert found["raw"] == []
    assert sum(found["data"][0]["rows"].values()) == 600
    assert found["runs"] == []
    assert found["current"]["data"] == found["data"][0]["key"]
    assert found["current"]["next"] == "recsys train"
    assert "next" in recsys("status").out


def test_status_reports_problems_of_the_current_config(recsys):
    Path("workspace").mkdir()
    Path("workspace/current.yaml").write_text("dataset: {name: nowhere}\n")
    found = recsys("status", "--json").json
    assert "unknown dataset 'nowhere'" in found["current"]["problem"]
    assert recsys("status").code == 0


def test_doctor_reports_machine_and_auto_engine(recsys):
    found = recsys("doctor", "--json").json
    assert found["cores"] >= 1
    assert found["packages"]["polars"]
    assert found["auto_engine"] in registry.ENGINES
    answer = recsys("doctor")
    assert f"{found['auto_engine']}, the fastest available engine" in answer.out


def test_doctor_reports_requirements_of_a_gpu(recsys):
    found = recsys("doctor", "--json").json["gpu"]
    assert {engine["name"] for engine in found["engines"]} == set(registry.ENGINES)
    assert found["releases"]["polars"]["needs"] == {"cudf-polars-cu13 26.10": "polars<1.45,>=1.35"}
    assert found["releases"]["nvtabular"]["needs"]["cudf"] == "24.4"
    if found["auto_engine"] is None:
        assert "pip install 'recsys-cli[gpu]'" in " ".join(recsys("doctor").out.split())


def test_doctor_reports_requirements_of_sharded_tables(recsys, monkeypatch):
    from recsys_cli.models import torchrec_releases

    real = torchrec_releases.metadata.version

    def version(name):
        if name == "torchrec":
            return "1.2.0"
        return "1.2.0" if name == "fbgemm-gpu-cpu" else real(name)

    monkeypatch.setattr(torchrec_releases.metadata, "version", version)
    found = recsys("doctor", "--json").json["sharding"]
    assert found["packages"]["torchrec"] == "1.2.0"
    assert "torchrec 1.2.0 does not go with torch" in found["why_not"]
    assert "pip install --no-deps 'torchrec==1." in found["install"]


def test_doctor_reports_clusters(recsys, monkeypatch):
    from recsys_cli.executors import address

    monkeypatch.setattr(address, "find_spec", lambda name: None if name == "dask_cuda" else "there")
    found = recsys("doctor", "--json").json["clusters"]
    assert found["local"]["install"] is None
    assert found["local_cuda"]["install"] == "pip install 'recsys-cli[dask-cuda]'"
    assert "local_cuda (pip install 'recsys-cli[dask-cuda]')" in recsys("doctor").out.replace("\n", " ")


def test_doctor_checks_a_cluster(recsys):
    pytest.importorskip("distributed")
    found = recsys("doctor", "--cluster", "local", "--json").json
    assert found["cluster"] == "local"
    assert len(found["addresses"]) == found["workers"] == found["threads"]
    assert {"recsys-cli", "python", "polars", "distributed"} <= found["releases"].keys()
    assert "seen by all" in recsys("doctor", "--cluster", "local").out


def test_doctor_names_the_problem_of_a_cluster(recsys, monkeypatch):
    pytest.importorskip("distributed")
    from recsys_cli.executors import cluster

    monkeypatch.setattr(cluster, "CONNECT_TIMEOUT", 0.5)
    for name, code, message in [
        ("tcp://127.0.0.1:1", 1, "no Dask scheduler answers at"),
        ("rya", 2, "has to be local"),
    ]:
        found = recsys("doctor", "--cluster", name)
        assert found.code == code
        assert message in found.err


def test_doctor_reports_a_wrong_pin(recsys, monkeypatch):
    from recsys_cli.etl import engine as engines

    here = {**engines.PINS, "numpy": "2.4.0", "distributed": None}
    monkeypatch.setattr(engines, "installed_pin", here.get)
    wrong = recsys("doctor", "--json").json["nvtabular"]["wrong_pins"]
    assert wrong == {"numpy": "2.4.0, needs 1.*", "distributed": "missing, needs 2023.7.*"}


def test_status_shows_rmse_only_for_numeric_labels():
    likes = {"name": "likes", "options": {}, "state": "evaluated", "metrics": {"auc": 0.75, "rmse": 0.43}, "bytes": 1}
    stars = {
        "name": "stars",
        "options": {},
        "state": "evaluated",
        "metrics": {"rmse": 0.84, "ndcg@10": 0.1},
        "bytes": 1,
    }
    heads, cells = _runs([likes, stars])
    assert heads == ("run", "state", "AUC", "RMSE", "NDCG@10", "size")
    assert [row[2:5] for row in cells] == [("0.7500", "", ""), ("", "0.8400", "0.1000")]
    assert _runs([likes])[0] == ("run", "state", "AUC", "NDCG@10", "size")


def test_status_tells_runs_of_one_model_apart_by_their_options(recsys, prepared):
    model = ("model={name: popularity, half_life: %s}", "train.monitor=auc")
    for half_life in ("null", "86400"):
        assert recsys("-q", "train", model[0] % half_life, model[1]).code == 0
    runs = recsys("status", "--json").json["runs"]
    assert sorted(len(run["options"]) for run in runs) == [0, 1]
    assert recsys("status").out.count("half_life=86,400") == 1


READ_ONLY = """
import ctypes
from recsys_cli.cli import app

for capability in (1, 3):  # CAP_DAC_OVERRIDE and CAP_FOWNER, with which root may write everywhere; others have none to drop
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
for line in ("status", "report ratings.yaml", "inspect user u1", "recommend --user u1"):
    assert app(line.split(), standalone_mode=False) == 0, line
"""


def test_queries_work_in_a_workspace_that_is_read_only(recsys, finished):
    for folder in (".locks", ".scratch"):
        shutil.rmtree(Path("workspace") / folder)
    os.utime("ratings.csv")  # its cached checksum is outdated
    before = sorted(Path().rglob("*"))
    for path in (Path(), *before):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        done = subprocess.run([sys.executable, "-B", "-c", READ_ONLY], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert sorted(Path().rglob("*")) == before
    finally:
        for path in (Path(), *before):
            path.chmod(0o755)


def test_status_lists_folders_that_no_command_reads(recsys, finished):
    assert recsys("status", "--json").json["leftovers"] == []
    left = [
        Path("workspace") / name for name in ("data/0123456789abcdef", "runs/20200101T000000-ease-01234567", "tune/0")
    ]
    for folder in left:
        folder.mkdir(parents=True)
    assert recsys("status", "--json").json["leftovers"] == [str(folder) for folder in left]
    assert recsys("status").out.count("no command reads it: remove it") == 3
