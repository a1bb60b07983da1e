"""The whole pipeline through the installed command, as a user runs it: on planted data, and on real MovieLens."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
RECSYS = Path(sys.executable).with_name("recsys")
CONFIG = """
dataset: {name: synthetic, users: 300, items: 200, rows: 30000}
split: {method: random, valid: 0.15, test: 0.15}
features:
  user: userId
  item: movieId
  label: label
  timestamp: timestamp
  ops:
    - {op: JoinExternal, table: movies, on: movieId, columns: [genres]}
    - {op: Categorify, columns: [userId, movieId, genres]}
    - {op: LambdaOp, expression: "rating > 3", output: label, dtype: int8}
model: {name: mlp, embedding_dim: 8, hidden_dims: [32], dropout: 0.1}
train: {epochs: 3, batch_size: 512, learning_rate: 0.005, sparse_embeddings: true, checkpoint_steps: 5, device: cpu}
evaluate: {k: [10], bootstrap: 50}
"""


class Shell:
    """A folder with a config, and the command in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        (folder / "x.yaml").write_text(CONFIG)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [RECSYS, *arguments], cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *arguments: str, code: int = 0) -> str:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=300)
        assert process.returncode == code, f"recsys {' '.join(arguments)}: {out}\n{err}"
        return out + err

    def json(self, *arguments: str) -> dict:
        return json.loads(subprocess.run(
            [RECSYS, "--json", *arguments], cwd=self.folder, env=self.environment, text=True, capture_output=True, check=True,
            timeout=300,
        ).stdout)  # fmt: skip

    def runs(self) -> list[Path]:
        return sorted((self.folder / "workspace" / "runs").iterdir())

    def weights(self, run: Path) -> dict[str, np.ndarray]:
        return load_file(run / "checkpoints" / "last.safetensors")


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path)


def test_four_commands_lead_to_a_report(shell):
    shell.run("download", "x.yaml")
    shell.run("etl", "x.yaml")
    shell.run("train", "--epochs", "2")
    result = shell.json("evaluate")

    (run,) = shell.runs()
    assert result["run"] == run.name
    evaluation = json.loads((run / "evaluation.json").read_text())
    text = json.dumps(evaluation)
    assert "popularity" in text
    assert (run / "report.html").stat().st_size > 10_000
    assert json.loads((run / "manifest.json").read_text())["epochs"] == 2
    assert {path.name for path in shell.folder.iterdir()} == {"x.yaml", "workspace"}

    assert "up to date" in shell.run("run", "x.yaml", "train.epochs=2")
    assert "up to date" in shell.run("train")
    assert shell.runs() == [run]


def test_killed_training_resumes_to_the_same_weights(shell):
    shell.run("download", "x.yaml")
    shell.run("etl", "x.yaml")
    shell.run("train")
    (whole,) = shell.runs()

    process = shell.start("train", "--force")
    deadline = time.monotonic() + 120
    while not list((shell.folder / "workspace" / "runs").glob("*/checkpoints/last.safetensors"))[1:]:
        assert time.monotonic() < deadline
        assert process.poll() is None, "it was done before it could be killed"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    killed = shell.runs()[-1]
    assert not (killed / "manifest.json").exists()

    assert "resuming" in shell.run("train", "--resume")
    assert shell.runs() == [whole, killed]
    first, second = (shell.weights(run) for run in (killed, whole))
    assert first.keys() == second.keys()
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


def test_killed_etl_leaves_nothing_after_the_next(shell):
    shell.run("download", "x.yaml")
    scratch = shell.folder / "workspace" / ".scratch"

    process = shell.start("etl", "x.yaml")
    deadline = time.monotonic() + 120
    while not list(scratch.rglob("*.arrow")):  # rows that were read and dealt
        assert time.monotonic() < deadline
        assert process.poll() is None, "it was done before it could be killed"
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list(scratch.iterdir())
    assert not list((shell.folder / "workspace").glob("data/*"))

    shell.run("etl", "x.yaml")
    assert list(scratch.iterdir()) == []
    assert len(list((shell.folder / "workspace").glob("data/*/manifest.json"))) == 1


def measured(run: Path) -> dict:
    return json.loads((run / "evaluation.json").read_text())


@pytest.mark.slow
def test_demo_comes_near_to_what_its_generator_allows(shell):
    shell.run("run", str(CONFIGS / "demo-labels.yaml"), "evaluate.bootstrap=50")

    evaluation = measured(*shell.runs())
    found = {system: metrics["auc"]["value"] for system, metrics in evaluation["pointwise"].items()}
    assert evaluation["ceiling"]["auc"] - 0.02 < found["model"] < evaluation["ceiling"]["auc"] + 0.005
    assert found["item mean"] < found["model"] - 0.05


@pytest.mark.slow
def test_catalog_models_beat_popularity(shell):
    shell.run("run", str(CONFIGS / "demo.yaml"), "model={name: item-knn}", "evaluate.bootstrap=50")

    ranking = measured(*shell.runs())["ranking"]
    ndcg = {system: metrics["ndcg@10"]["value"] for system, metrics in ranking.items()}
    assert ndcg["model"] > 1.5 * ndcg["popularity"]
    assert ndcg["ease"] > 1.8 * ndcg["popularity"]


@pytest.mark.slow
def test_real_movielens_is_learnt(shell, shared_data):
    shell.run("download", "movielens-latest-small", "--from-file", str(shared_data / "ml-latest-small.zip"))
    model = "{name: mlp, embedding_dim: 32, hidden_dims: [128, 128, 128], dropout: 0.2, embedding_dropout: 0.3}"
    train = "{epochs: 4, batch_size: 1024, learning_rate: 0.001, sparse_embeddings: true}"
    shell.run("run", str(CONFIGS / "ml-latest-small.yaml"), f"model={model}", f"train={train}", "evaluate.bootstrap=50")

    found = {system: metrics["auc"]["value"] for system, metrics in measured(*shell.runs())["pointwise"].items()}
    assert found["model"] > 0.78  # 0.79 to 0.80 over splits and seeds; the plain network's 0.77 would fail
    assert found["item mean"] < found["model"] - 0.05
