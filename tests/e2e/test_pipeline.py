"""The whole pipeline through the installed command, as a user runs it: on planted data, and on real MovieLens."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [RECSYS, *arguments], cwd=self.folder, env=self.environment, text=True, capture_output=True, check=False,
            timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"recsys {' '.join(arguments)}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def runs(self) -> list[Path]:
        return sorted((self.folder / "workspace" / "runs").iterdir())


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path)


@pytest.mark.slow
def test_four_commands_lead_to_a_report(shell):
    shell.run("download", "x.yaml")
    shell.run("etl", "x.yaml")
    shell.run("train", "--epochs", "2")
    result = json.loads(shell.run("--json", "evaluate"))

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
def test_real_movielens_is_learnt(shell, shared_data):
    shell.run("download", "movielens-latest-small", "--from-file", str(shared_data / "ml-latest-small.zip"))
    model = "{name: mlp, embedding_dim: 32, hidden_dims: [128, 128, 128], dropout: 0.2, embedding_dropout: 0.3}"
    train = "{epochs: 4, batch_size: 1024, learning_rate: 0.001, sparse_embeddings: true}"
    shell.run("run", str(CONFIGS / "ml-latest-small.yaml"), f"model={model}", f"train={train}", "evaluate.bootstrap=50")

    found = {system: metrics["auc"]["value"] for system, metrics in measured(*shell.runs())["pointwise"].items()}
    assert found["model"] > 0.78  # 0.79 to 0.80 over splits and seeds; the plain network's 0.77 would fail
    assert found["item mean"] < found["model"] - 0.05


@pytest.mark.slow
def test_a_sample_of_the_soak_holds():
    """Of `make soak`: a killed command that is typed again, or resumed, comes to the same weights and leaves nothing behind."""
    parts = [word for part in ("kills", "concurrent", "full disk", "damage") for word in ("--only", part)]
    line = [sys.executable, "-m", "scripts.soak", "--sample", "--seed", "1", *parts]
    done = subprocess.run(line, cwd=CONFIGS.parent, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
