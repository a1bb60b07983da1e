"""Our models beside RecBole's, LensKit's and RecTools' on the same rows of ml-latest-small: quality by one evaluator, and seconds.

usage: bench_peers.py ZIP [--python PYTHON] [--models ease sasrec ...] [--peers recbole ...] [--rounds 1] [--threads 2] [--quick]

ZIP is MovieLens latest-small. The peers get a venv of their own with what peers/requirements.txt pins; one that is there already
is named by its Python. Models that rank the catalogue are fitted to train of the fixed leave-last-out split and asked for ten of
the items with a train row that a user has not met in train or valid, for all users; ranking models get the fixed random split,
with 5 % of its train to choose an epoch by. Every system's lists or probabilities go through the same evaluator, and ours are
compared with a peer's user by user. Each runs as a process of its own, in turn; round r has seed r. `--quick` trains for one
epoch, to see that all works; what it finds is not kept. Results of models that are not named stay in scripts/results/peers.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fixed_splits import SCRIPT, hold_out, make_splits
from measure import RESULTS, Run, machine, run, spread
from peers.ours import RECSYS, Ours
from peers.systems import MODELS, PEERS, RANKING
from peers.table import show
from peers.verdicts import MAIN, figures, judge

HERE = Path(__file__).resolve().parent
NAME = "peers"
REQUIREMENTS = HERE / "peers" / "requirements.txt"
COUNTED = (
    "fit + rank, in the process itself, libraries imported. Of a peer: all that it learns, its choice of an epoch by valid with "
    "it, and every user's list (or every test row's probability). Of ours: what train and evaluate say of themselves, with "
    "reading the prepared data and checkpoints, without the baselines and the metrics. Beside it `prepare`: of a peer from rows in "
    "memory to its own data; of ours the whole of etl, from the raw files, with its checks and its report"
)
THREADS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS",
    "LK_NUM_THREADS", "LK_NUM_BACKEND_THREADS",
)  # fmt: skip
"""Libraries that ask the environment how many threads they may use."""


@dataclass
class System:
    """What one system made of one model, round by round."""

    files: list[Path] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    seconds: list[dict[str, float]] = field(default_factory=list)

    @property
    def totals(self) -> list[float]:
        """Seconds of each round, without what prepares the rows."""
        return [parts["fit"] + parts["rank"] for parts in self.seconds]


@dataclass(frozen=True)
class Bench:
    """Where everything is.

    Attributes:
        python: Of the peers' venv.
        folder: Scratch space, with a workspace that has the raw data.
        splits: By kind of model: its train, valid and test.
        threads: How many each system may use.
        quick: Whether to train for one epoch alone.
    """

    python: Path
    folder: Path
    splits: dict[str, dict[str, str]]
    threads: int
    quick: bool

    def run_ours(self, model: str, seed: int, system: System) -> None:
        """Add a round of ours."""
        kind, out = kind_of(model), self.folder / f"ours-{model}-{seed}.npz"
        ours = Ours(kind, self.splits[kind], self.folder / "workspace")
        done, seconds = ours.fit_and_rank(model, out, seed=seed, epochs=1 if self.quick else None)
        _add(system, out, done, seconds)

    def run_peer(self, peer: str, model: str, seed: int, system: System) -> None:
        """Add a round of a peer."""
        setting, out = PEERS[peer][model], self.folder / f"{peer}-{model}-{seed}.npz"
        cut = {setting.epochs: 1} if self.quick and setting.epochs else {}
        job = {
            **self.splits[kind_of(model)], "items": str(self.folder / "movies.csv"), "model": model, "seed": seed,
            "threads": self.threads, "options": setting.options | cut, "out": str(out),
        }  # fmt: skip
        written = self.folder / "job.json"
        written.write_text(json.dumps(job), encoding="utf-8")
        done = run([str(self.python), str(HERE / "peers" / f"run_{peer}.py"), str(written)], cwd=self.folder)
        _add(system, out, done, json.loads(out.with_suffix(".json").read_text(encoding="utf-8")))


def main() -> None:
    """Measure in turn, judge, show and keep."""
    given = _arguments()
    os.environ.update(dict.fromkeys(THREADS, str(given.threads)), LK_NUM_PROCS="1", CUDA_VISIBLE_DEVICES="")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        python = given.python.absolute() if given.python else make_venv(folder / "venv")
        bench = Bench(python, folder, _splits(given.zip, given.splits, folder), given.threads, given.quick)
        kept = RESULTS / f"{NAME}.json"
        found = json.loads(kept.read_text(encoding="utf-8"))["models"] if kept.is_file() and not given.quick else {}
        for model in given.models:
            systems = _measured(bench, model, given.peers, given.rounds)
            facts = _facts(model, systems, Path(bench.splits[kind_of(model)]["test"]))
            found[model] = {"rounds": given.rounds, "threads": given.threads, **facts}
            show(f"{model}, one epoch" if given.quick else model, found[model])
            if not given.quick:
                text = json.dumps({"seconds": COUNTED, "versions": _versions(), "models": found}, indent=2)
                kept.write_text(text + "\n", encoding="utf-8")


def kind_of(model: str) -> str:
    """Return what is asked of a model."""
    return "ranking" if model in RANKING else "top-k"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=Path)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--splits", type=Path, default=SCRIPT)
    return parser.parse_args()


def _versions() -> dict[str, str]:
    """Return what the peers' venv has been asked for, which their figures are of."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").lower().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    return {name: pinned[name] for name in (*PEERS, "torch", "numpy", "pm-implicit")}


def make_venv(folder: Path) -> Path:
    """Return the Python of a new venv with what the peers need."""
    run([sys.executable, "-m", "venv", str(folder)])
    python = folder / "bin" / "python"
    run([str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)])
    return python


def _splits(archive: Path, script: Path, folder: Path) -> dict[str, dict[str, str]]:
    """Write the fixed splits and the raw workspace; return the files by kind of model."""
    files = make_splits(archive, script, folder)
    workspace = folder / "workspace"
    run([RECSYS, "-q", "-w", str(workspace), "download", "movielens-latest-small", "--from-file", str(archive)])
    shutil.copy(next(workspace.rglob("movies.csv")), folder)
    parts = hold_out(files / "random" / "train.parquet", folder, share=0.05, number=0)
    return {
        "top-k": {name: str(files / "loo" / f"{name}.parquet") for name in ("train", "valid", "test")},
        "ranking": {**parts, "test": str(files / "random" / "test.parquet")},
    }


def _measured(bench: Bench, model: str, peers: list[str], rounds: int) -> dict[str, System]:
    systems = {"ours": System()} | {peer: System() for peer in peers if model in PEERS[peer]}
    for seed in range(rounds):
        for name, system in systems.items():
            if name == "ours":
                bench.run_ours(model, seed, system)
            else:
                bench.run_peer(name, model, seed, system)
    return systems


def _add(system: System, out: Path, done: Run, seconds: dict[str, float]) -> None:
    system.files.append(out)
    system.runs.append(done)
    system.seconds.append(seconds)


def _facts(model: str, systems: dict[str, System], test: Path) -> dict[str, Any]:
    """Return what is kept of a model: figures, seconds and memory of each system, and how ours compares."""
    kind, ours = kind_of(model), systems["ours"]
    found: dict[str, Any] = {}
    for name, system in systems.items():
        found[name] = {
            **{figure: round(value, 4) for figure, value in figures(kind, system.files, test).items()},
            "seconds (min / median / max)": spread(system.totals),
            "parts": {part: spread([parts[part] for parts in system.seconds]) for part in system.seconds[0]},
            "whole process": spread([done.seconds for done in system.runs]),
            "peak_gb": spread([done.peak_gb for done in system.runs]),
        }
        if name != "ours":
            judged = judge(kind, ours.files, system.files, test)
            found[name] |= {
                "settings": PEERS[name][model].note,
                "ours less": {
                    figure: [round(x, 4) for x in (by.difference, by.low, by.high)] for figure, by in judged.items()
                },
                "ours is": judged[MAIN[kind]].verdict,
                "times ours' seconds": round(min(system.totals) / min(ours.totals), 2),
            }
    return {"systems": found, "figure of the verdict": MAIN[kind], "machine": machine("torch", "numpy")}


if __name__ == "__main__":
    main()
