"""No command runs code from a config unless it is trusted or installed as a plugin."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import recsys_cli
from recsys_cli.errors import ConfigError
from recsys_cli.etl.engine import choose
from recsys_cli.plugins import resolve
from recsys_cli.training.trackers import find

CONFIG = """dataset: {name: %s}
features:
  user: userId
  item: movieId
  label: label
  ops:
    - {op: Categorify, columns: [userId, movieId]}
    - {op: LambdaOp, expression: rating > 3, output: label}
"""
TABLE = "userId,movieId,rating\n" + "".join(f"u{n % 30},i{n * 7 % 20},{1 + n % 5}\n" for n in range(600))
VARIED = "userId,movieId,rating\n" + "".join(f"u{n % 30},i{(n * n + n // 30) % 41},{1 + n % 5}\n" for n in range(400))
DATA = """
from pathlib import Path
Path("ran").touch()
from recsys_cli.data import DatasetFactory, open_source

@DatasetFactory
def source(name, options):
    return open_source("files", {"interactions": "table.csv"})

@DatasetFactory
def breaks(name, options):
    return {}[name]

@DatasetFactory
def leaves(name, options):
    raise SystemExit(0)

@DatasetFactory
def nothing(name, options):
    return None

def plain(name, options):
    Path("called").touch()
"""
MODEL_CONFIG = """
from pathlib import Path
Path("ran").touch()
from pydantic import field_validator
from recsys_cli.models.configs.ranking import MLPConfig as Base

class Config(Base):
    extra_layer: bool = False

    @field_validator("extra_layer")
    @classmethod
    def _check(cls, value):
        return {False: False}[value]
"""
MODEL = "from recsys_cli.models.ranking.networks import MLP as Base\n\nclass Model(Base):\n    pass\n"
METRICS = """
from pathlib import Path
Path("ran").touch()
import numpy as np
from recsys_cli.metrics import GroupedMetric, ListMetric, PointwiseMetric, RankingMetric
from recsys_cli.metrics.metric import ByRow, mean_influence, mean_of

def squares(tally):
    return (1 - tally.probabilities) ** 2, tally.probabilities**2

def of_each_row(labels, logits):
    return np.square(np.asarray(labels) - 1 / (1 + np.exp(-np.asarray(logits, np.float64))))

BRIER = PointwiseMetric(
    "brier", "Brier score", "lower",
    lambda tally: mean_of(*squares(tally), tally), lambda tally: mean_influence(*squares(tally), tally), by_row=ByRow(of_each_row),
)
OF_NUMBERS = PointwiseMetric("x", "X", "lower", BRIER.compute, BRIER.influence, of_errors=True)
FIRST = RankingMetric("first", "first place", lambda found, k: found.hits[:, 0].astype(float))
SHOWN = ListMetric("shown", "items shown", None, lambda lists, k: np.asarray(float((lists.candidates[:, :k] >= 0).sum())))
USERS = GroupedMetric("users", "users", lambda users, labels, scores: (np.ones(3), np.ones(3)))

class Own(RankingMetric):
    pass

OWN = Own("own", "own", FIRST.compute)
"""
FOREIGN = "their_package"
HARMFUL = [
    "shutil:rmtree", "runpy:run_path", "builtins:exec", "builtins:eval", "builtins:open", "builtins:print", "builtins:__import__",
    "os:remove", "os:system", "os:mkdir", "posix:system", "subprocess:run", "subprocess:Popen", "importlib:import_module",
    "pickle:loads", "code:interact", "webbrowser:open", "ctypes:CDLL", "socket:create_connection", "timeit:timeit",
    "recsys_cli.workspace:write_text", "recsys_cli.cli:main", "test.support:captured_stdout", "test.support.os_helper:rmtree",
]  # fmt: skip
ODD = ["../x", "a.b:c.d", "a..b", ".a", "a b.c", "ä.b", "a\u0000.b", "a." * 400 + "b", ":", "a:", ":b"]


@pytest.fixture(autouse=True)
def package(tmp_path, monkeypatch):
    """Write a package of somebody else's into the working directory, from where it can be imported."""
    monkeypatch.delenv("RECSYS_TRUST", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / FOREIGN
    (folder / "net").mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "data": DATA,
        "metrics": METRICS,
        "net/__init__": "",
        "net/config": MODEL_CONFIG,
        "net/model": MODEL,
    }.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "broken.py").write_text("1 / 0\n")
    (tmp_path / "table.csv").write_text(TABLE)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == FOREIGN]:
        del sys.modules[name]


def written(dataset: str, rest: str = "") -> Path:
    path = Path("x.yaml")
    path.write_text(CONFIG % f'"{dataset}"' + rest)
    return path


KINDS = ("dataset", "model", "engine", "op", "tracker", "metric")


def test_names_of_other_code_are_refused_or_unknown(monkeypatch):
    """Of Python and recsys even if trusted; of other packages without trust; odd names are no import paths."""
    for kind in KINDS:
        for name in HARMFUL:
            monkeypatch.setenv("RECSYS_TRUST", name.partition(":")[0])
            with pytest.raises(
                ConfigError, match=rf"'{name}' is part of (recsys|Python's standard library), no {kind} plugin"
            ):
                resolve(name, what=kind)
        monkeypatch.setenv("RECSYS_TRUST", "other, their")
        with pytest.raises(ConfigError, match=f"'{FOREIGN}.x:y' is code of a plugin and not trusted"):
            resolve(f"{FOREIGN}.x:y", what=kind)
        for name in ODD:
            assert resolve(name, what=kind) is None
    monkeypatch.setenv("RECSYS_TRUST", f"other, {FOREIGN}")
    assert resolve(f"{FOREIGN}.x:y", what="op") == f"{FOREIGN}.x:y"


@pytest.mark.parametrize("name", ["numpy:save", "torch:load"])
def test_trusted_module_provides_only_components(recsys, name, monkeypatch):
    monkeypatch.setenv("RECSYS_TRUST", name.partition(":")[0])
    assert recsys("validate", written(name)).code == 2
    with pytest.raises(ConfigError, match=r"is not a subclass of recsys_cli\.etl\.engine\.Engine"):
        choose(name, Path())
    with pytest.raises(ConfigError, match=r"is not a subclass of recsys_cli\.training\.trackers\.Tracker"):
        find([name])


def test_no_command_imports_untrusted_code(recsys):
    """Every command with code in one place, and every place with one command: all load configs by the same function."""
    model, metric = f"{FOREIGN}.net", f"{FOREIGN}.metrics:BRIER"
    places = {
        f"model: {{name: {model}}}\n", f"bench: {{models: [mlp, {model}]}}\n", f"evaluate: {{metrics: ['{metric}']}}\n",
        f"tune: {{space: {{model.name: {{choices: [mlp, {model}]}}}}}}\n", f"train: {{monitor: '{metric}'}}\n",
        f"bench: {{models: [mlp], metrics: ['{metric}']}}\n", f"train: {{trackers: ['{FOREIGN}.data:source']}}\n",
        f"etl: {{engine: '{FOREIGN}.data:source'}}\n",
    }  # fmt: skip
    commands = ["config", "etl", "run", "train", "tune", "bench", "evaluate", "report", "download"]
    cases = [("validate", "movielens-100k", rest) for rest in places]
    for command, dataset, rest in cases + [(command, f"{FOREIGN}.data:source", "") for command in commands]:
        answer = recsys(command, written(dataset, rest))
        assert answer.code == 2, answer
        assert "is code of a plugin and not trusted" in answer.err
        assert f"recsys --trust {FOREIGN}" in answer.err
        assert "x.yaml:" in answer.err
    assert not Path("ran").exists()


def test_a_trusted_dataset_and_model_work_from_validate_to_evaluate(recsys):
    config = written(
        f"{FOREIGN}.data:source", f"model: {{name: {FOREIGN}.net, hidden_dims: [4]}}\ntrain: {{epochs: 1}}\n"
    )
    assert recsys("validate", config, "--trust", FOREIGN).code == 0
    assert "RECSYS_TRUST" not in os.environ
    assert recsys("validate", config).code == 2
    for line in (["etl", config], ["train"], ["evaluate"]):
        answer = recsys(*line, RECSYS_TRUST=f"something_else,{FOREIGN}")
        assert answer.code == 0, answer.err
    for name in [name for name in sys.modules if name.partition(".")[0] == FOREIGN]:
        del sys.modules[name]
    Path("ran").unlink()
    # A workspace of somebody else: its current config and its run name what nobody here trusts.
    (run,) = Path("workspace/runs").iterdir()
    status = recsys("status", "--json")
    assert status.code == 0
    assert "not trusted" in status.json["current"]["problem"]
    for line in (["evaluate", run.name], ["evaluate"], ["report"], ["train"], ["etl"], ["inspect", "user", "u1"]):
        answer = recsys(*line)
        assert answer.code == 2, (line, answer)
        assert "not trusted" in answer.err
    assert not Path("ran").exists()


@pytest.mark.slow
def test_trusted_metrics_are_measured_monitored_and_compared(recsys):
    names = [f"{FOREIGN}.metrics:{name}" for name in ("BRIER", "FIRST", "SHOWN", "USERS")]
    rest = f"""model: {{name: mlp, hidden_dims: [4]}}
train: {{epochs: 2, monitor: "{names[1]}@5"}}
evaluate: {{metrics: {names}, k: [5], bootstrap: 20}}
bench: {{models: [mlp, fm], metrics: ["{names[1]}@5", "{names[0]}", "{names[2]}@5"], seeds: [1]}}
"""
    Path("table.csv").write_text(VARIED)
    config = written(f"{FOREIGN}.data:source", rest)
    assert recsys("etl", config, "--trust", FOREIGN).code == 0
    ranked = recsys("bench", "--trust", FOREIGN, "--json")
    assert ranked.code == 0, ranked.err
    models = [standing for standing in ranked.json["standings"] if not standing["is_baseline"]]
    assert len(models) == 2
    for standing in models:
        assert all(standing["scores"][name]["value"] is not None for name in ranked.json["metrics"])
    runs = sorted(path.name for path in Path("workspace/runs").iterdir())
    evaluation = json.loads(Path(f"workspace/runs/{runs[0]}/evaluation.json").read_text())
    rows, ranking, lists = (evaluation[part]["model"] for part in ("pointwise", "ranking", "beyond"))
    assert rows[names[0]]["value"] == pytest.approx(rows["rmse"]["value"] ** 2)
    assert rows[names[3]]["value"] == 1
    assert 0 <= ranking[f"{names[1]}@5"]["value"] <= ranking["hr@5"]["value"]
    assert lists[f"{names[2]}@5"]["value"] > 0
    last = Path(f"workspace/runs/{runs[0]}/metrics.jsonl").read_text().splitlines()[-1]
    assert f"{names[1]}@5" in last
    report = Path(f"workspace/runs/{runs[0]}/report.html").read_text()
    assert all(title in report for title in ("Brier score ↓", "first place@5 ↑", "items shown@5", "users ↑"))
    compared = recsys("compare", *runs, "--trust", FOREIGN, "--json")
    assert compared.code == 0, compared.err
    assert {names[0], f"{names[1]}@5"} <= {figure["metric"] for figure in compared.json["figures"]}
    assert "Brier score" in recsys("evaluate", runs[0], "--trust", FOREIGN).out
    assert "not trusted" in recsys("evaluate", runs[0]).err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("evaluate.metrics=['{p}.metrics:OWN']", "'{p}.metrics:OWN' is no metric: one of PointwiseMetric"),
        ("evaluate.metrics=['{p}.metrics:OF_NUMBERS']", "{p}.metrics:OF_NUMBERS needs a numeric label"),
        ("evaluate.metrics=['{p}.metrics:FIRST@5']", "{p}.metrics:FIRST@5 has a cut-off; evaluate.k sets"),
        ("evaluate.metrics=['{p}.broken:X']", "cannot load '{p}.broken:X': ZeroDivisionError"),
        ("train.monitor='{p}.metrics:FIRST'", "{p}.metrics:FIRST needs a cut-off, such as {p}.metrics:FIRST@10"),
        ("train.monitor='{p}.metrics:BRIER@5'", "{p}.metrics:BRIER takes no cut-off"),
        (
            "bench={{models: [mlp], metrics: ['{p}.metrics:BRIER']}}",
            "{p}.metrics:BRIER is not measured: add it to evaluate.metrics",
        ),
    ],
)
def test_invalid_metric_is_a_problem_of_the_config(recsys, override, message):
    answer = recsys("validate", written("movielens-100k"), override.format(p=FOREIGN), "--trust", FOREIGN)
    assert answer.code == 2
    assert message.format(p=FOREIGN) in answer.err


def test_installed_plugin_needs_no_trust_option(recsys, tmp_path, monkeypatch):
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[recsys.datasets]\ntheirs = {FOREIGN}.data:source\nbad = shutil:rmtree\n\n[recsys.models]\nnet = {FOREIGN}.net\n"
        f"\n[recsys.metrics]\nbrier = {FOREIGN}.metrics:BRIER\n\n[recsys.engines]\nfast = {FOREIGN}.engine:Fast\n"
    )
    config = written("theirs", "model: {name: net}\n")
    assert recsys("validate", config).code == 0
    for kind, name in (("datasets", "theirs"), ("models", "net"), ("metrics", "brier"), ("engines", "fast")):
        assert recsys("ls", kind, name).code == 0
        assert re.search(rf"{name} +theirs +{FOREIGN}\.", recsys("ls", kind).out)
    assert "unknown model 'nets' (did you mean net?)" in recsys("validate", config, "model.name=nets").err
    assert (
        "unknown metric 'brierr' (did you mean brier?)" in recsys("validate", config, "evaluate.metrics=[brierr]").err
    )
    assert recsys("validate", config, f"dataset.name={FOREIGN}.data:source").code == 0
    assert recsys("validate", config, "evaluate.metrics=[brier]", "train.monitor=brier").code == 0
    figures = ("bench.models=[mlp]", "bench.metrics=[brier]")
    assert recsys("validate", config, "evaluate.metrics=[brier]", *figures).code == 0
    assert "brier is not measured: add it to evaluate.metrics" in recsys("validate", config, *figures).err
    other = recsys("validate", config, f"dataset.name={FOREIGN}.data:plain")
    assert (other.code, Path("called").exists()) == (2, False)
    bad = recsys("validate", config, "dataset.name=bad")
    assert bad.code == 2
    assert "is not a component" in bad.err


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["dataset.name={p}.data:plain"], "override dataset.name={p}.data:plain: dataset.name: '{p}.data:plain' is not declared"),
        (["dataset.name={p}.data:breaks"], "dataset.name: '{p}.data:breaks' cannot be opened: KeyError: '{p}.data:breaks'"),
        (["dataset.name={p}.data:leaves"], "'{p}.data:leaves' cannot be opened: SystemExit: 0"),
        (["dataset.name={p}.data:nothing"], "'{p}.data:nothing' returned no Source: it has no info, identity, fetch, tables"),
        (["dataset.name={p}.broken:source"], "cannot load '{p}.broken:source': ZeroDivisionError: division by zero"),
        (["model.name={p}.net", "model.extra_layer=true"], "model.name: cannot validate the options of {p}.net: KeyError: True"),
    ],
)  # fmt: skip
def test_exception_of_trusted_code_is_a_problem_of_the_config(recsys, overrides, message):
    answer = recsys(
        "validate", written("movielens-100k"), *(text.format(p=FOREIGN) for text in overrides), "--trust", FOREIGN
    )
    assert answer.code == 2
    assert message.format(p=FOREIGN) in answer.err
    assert not Path("called").exists()


def test_fault_of_a_metric_names_it(recsys, package):
    (package / "metrics.py").write_text(f"{METRICS}\nIT = RankingMetric('it', 'it', lambda found, k: exit(0))\n")
    Path("table.csv").write_text(VARIED)
    config = written(f"{FOREIGN}.data:source", "model: {name: popularity}\n")
    name = f"{FOREIGN}.metrics:IT"
    for line in (["etl", config, f"evaluate.metrics=['{name}']"], ["train"]):
        answer = recsys(*line, "--trust", FOREIGN)
        assert answer.code == 0, answer.err
    answer = recsys("evaluate", "--trust", FOREIGN)
    assert answer.code == 2, answer
    assert f"the metric {name} (compute) failed: SystemExit: 0" in answer.err


def test_a_model_does_not_end_the_process(recsys, package):
    (package / "net" / "model.py").write_text(MODEL + "\n    def loss(self, *given):\n        raise SystemExit(0)\n")
    config = written(f"{FOREIGN}.data:source", f"model: {{name: {FOREIGN}.net, hidden_dims: [4]}}\n")
    assert recsys("etl", config, "--trust", FOREIGN).code == 0
    answer = recsys("train", "--trust", FOREIGN)
    assert answer.code == 2, answer
    assert f"the model {FOREIGN}.net ended the process: SystemExit: 0" in answer.err


def test_fault_of_a_dataset_names_it(recsys, package):
    (package / "data.py").write_text(
        DATA
        + """
from recsys_cli.data.files import Files, FilesOptions

class Broken(Files):
    def identity(self):
        return 1 / 0

@DatasetFactory
def broken(name, options):
    return Broken(FilesOptions(interactions="table.csv"))
"""
    )
    answer = recsys("etl", written(f"{FOREIGN}.data:broken"), "--trust", FOREIGN)
    assert answer.code == 2, answer
    assert f"the dataset {FOREIGN}.data:broken failed: ZeroDivisionError" in answer.err


def test_the_current_directory_has_no_plugins(tmp_path):
    (tmp_path / "x.yaml").write_text(CONFIG % f"'{FOREIGN}.data:source'")
    root = {"PYTHONPATH": str(Path(recsys_cli.__file__).parents[1])}
    for options in ([], ["-P"]):
        line = [sys.executable, *options, "-m", "recsys_cli", "--trust", FOREIGN, "validate", "x.yaml"]
        done = subprocess.run(line, cwd=tmp_path, env=os.environ | root, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert f"No module named '{FOREIGN}'" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_trust_takes_the_names_of_modules(recsys):
    answer = recsys("--trust", "../x", "ls", "models")
    assert answer.code == 2
    assert "'../x' is not a module name" in answer.err
