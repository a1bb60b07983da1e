"""Training cost against quality of our sequence models and those of RecTools and RecBole, on the same rows of ml-latest-small.

usage: bench_sequence_peers.py ZIP --folder FOLDER [--python PYTHON] [--only ours-sasrec rectools-sasrec ...] [--seeds 1]
       [--limit 900] [--epochs 40] [--splits make_splits.py]

ZIP is MovieLens latest-small; models are fitted to train of the fixed leave-last-out split and rank the items with a train row
that a user has not met. The peers get a venv of their own with what peers/requirements.txt pins; one that is there already is named
by its Python. Each run is a process with one thread. After each epoch, NDCG@10 of all users of valid goes into its curve, next to
the processor seconds so far: of ours with its validation; of RecTools with the validation that ends it; of RecBole with its own.
The lists for test come from the epoch that is best on valid. `--limit` ends a peer after the epoch in which its processor seconds
are used up, `--epochs` ours after some epochs. Runs that FOLDER has are not repeated, so a bench goes on where it stopped; results
go to scripts/results/peers_sequences.json. Peers that FOLDER lacks keep the rows that file has of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench_peers import REQUIREMENTS, THREADS, make_venv
from fixed_splits import SCRIPT, make_splits
from measure import RESULTS, Run, keep, machine, run, spread
from peers.cost import compared, show
from peers.ours import RECSYS
from peers.systems import SEQUENCE_MODELS, SEQUENCES
from peers.verdicts import MAIN, figures, judge
from quality_topk import CONFIG

PROGRAMS = Path(__file__).resolve().parent / "peers"
NAME = "peers_sequences"
KIND = "top-k"
SYSTEMS = [f"ours-{model}" for model in SEQUENCE_MODELS] + [
    f"{peer}-{model}" for peer in SEQUENCES for model in SEQUENCES[peer]
]
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(10**11), "MALLOC_TOP_PAD_": str(1 << 26)}
"""glibc keeps freed memory, as our training tells it to; without that, a third of RecTools' time is that of fresh pages."""
WORK = (
    "ml-latest-small, fixed leave-last-out split, all items with a train row ranked; one thread. curve: processor seconds of "
    "training with its validation, and NDCG@10 of all valid users, by epoch of the first seed; test: mean over seeds; "
    "ours less: paired bootstrap over users, 95 % interval"
)


@dataclass(frozen=True)
class Bench:
    """Where everything is.

    Attributes:
        folder: Splits, workspace and finished runs.
        python: Of the peers' venv.
        limit: Processor seconds of a peer's training; None for no limit.
        epochs: Most epochs of ours; None for the default.
    """

    folder: Path
    python: Path
    limit: float | None
    epochs: int | None

    @property
    def splits(self) -> Path:
        """The leave-last-out split."""
        return self.folder / "splits" / "loo"

    def lists(self, system: str, seed: int) -> Path:
        """Return the file of a run's lists; beside it are its seconds and its curve (.json), and its process."""
        return self.folder / f"{system}-{seed}.npz"

    def finish(self, system: str, seed: int) -> None:
        """Make a run, if it is not there."""
        out = self.lists(system, seed)
        if out.is_file():
            return
        peer, model = system.split("-", 1)
        job = out.with_suffix(".job.json")
        program = PROGRAMS / ("run_ours.py" if peer == "ours" else f"run_{peer}.py")
        asked = self._our_job(model) if peer == "ours" else self._job(peer, model)
        job.write_text(json.dumps(asked | {"seed": seed, "out": str(out)}), encoding="utf-8")
        python = Path(sys.executable) if peer == "ours" else self.python
        process = run([str(python), str(program), str(job)], cwd=self.folder)
        out.with_suffix(".process.json").write_text(json.dumps(asdict(process)), encoding="utf-8")

    def _our_job(self, model: str) -> dict[str, Any]:
        paths = {
            "config": self.folder / "config.yaml",
            "workspace": self.folder / "ws",
            "valid": self.splits / "valid.parquet",
        }
        overrides = [f"train.epochs={self.epochs}"] if self.epochs else []
        return {"model": model, "overrides": overrides, **{name: str(path) for name, path in paths.items()}}

    def _job(self, peer: str, model: str) -> dict[str, Any]:
        setting = SEQUENCES[peer][model]
        files = {name: str(self.splits / f"{name}.parquet") for name in ("train", "valid", "test")}
        limit = {"limit": self.limit} if self.limit else {}
        return {
            **files, "items": str(next(self.folder.rglob("movies.csv"))), "model": model.split("-", 1)[0], "threads": 1,
            "options": setting.options, "training": setting.training | limit,
        }  # fmt: skip


def main() -> None:
    """Make the runs that are not there, compare all and keep."""
    given = _arguments()
    os.environ.update(
        dict.fromkeys(THREADS, "1"), CUDA_VISIBLE_DEVICES="", PYTHONPATH=str(PROGRAMS.parent), **ALLOCATOR
    )
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(
        folder, given.python.absolute() if given.python else make_venv(folder / "venv"), given.limit, given.epochs
    )
    _prepare(bench, given.zip, given.splits)
    for seed in range(given.seeds):
        for system in given.only:
            bench.finish(system, seed)
    systems = {system: seeds for system in SYSTEMS if (seeds := _seeds(bench, system))}
    rows = _kept_peers() | {system: _facts(bench, system, seeds) for system, seeds in systems.items()}
    for system in systems:
        if not system.startswith("ours"):
            rows[system] |= _against_ours(bench, system, systems)
    ratios = compared(rows)
    keep(
        NAME, {"work": WORK, "versions": _versions(), "rows": rows, "same quality": ratios, "machine": machine("torch")}
    )
    show(rows, ratios)


def _kept_peers() -> dict[str, Any]:
    """Return the peers' rows of earlier folders, without the comparison on test, which needs the lists of both."""
    kept = RESULTS / f"{NAME}.json"
    rows = json.loads(kept.read_text(encoding="utf-8"))["rows"] if kept.is_file() else {}
    compared_on_test = ("ours less", "ours is")
    return {
        system: {name: value for name, value in row.items() if name not in compared_on_test}
        for system, row in rows.items()
        if not system.startswith("ours")
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--only", nargs="*", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--limit", type=float)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--splits", type=Path, default=SCRIPT)
    return parser.parse_args()


def _prepare(bench: Bench, archive: Path, script: Path) -> None:
    """Write the splits and our prepared data."""
    if (bench.folder / "config.yaml").is_file():
        return
    make_splits(archive, script, bench.folder)
    workspace, config = bench.folder / "ws", bench.folder / "config.yaml"
    run([RECSYS, "-q", "-w", str(workspace), "download", "movielens-latest-small", "--from-file", str(archive)])
    config.write_text(CONFIG.format(bench.splits), encoding="utf-8")
    run([RECSYS, "-q", "-w", str(workspace), "etl", str(config)])


def _seeds(bench: Bench, system: str) -> list[int]:
    found = [file.stem.rsplit("-", 1)[1] for file in bench.folder.glob(f"{system}-[0-9]*.npz")]
    return sorted(int(seed) for seed in found if bench.lists(system, int(seed)).with_suffix(".process.json").is_file())


def _facts(bench: Bench, system: str, seeds: list[int]) -> dict[str, Any]:
    """Return what is kept of a system: its curve, what it took, and its figures on test."""
    files = [bench.lists(system, seed) for seed in seeds]
    runs = [Run(**json.loads(file.with_suffix(".process.json").read_text())) for file in files]
    parts = [json.loads(file.with_suffix(".json").read_text()) for file in files]
    curves = [part["curve"] for part in parts]
    peer, model = system.split("-", 1)
    found = figures(KIND, files, bench.splits / "test.parquet")
    return {
        "settings": SEQUENCES[peer][model].note if peer != "ours" else _our_settings(files[0]),
        "seeds": seeds,
        "epochs": [len(curve["points"]) for curve in curves],
        "best epoch": [curve["best"] for curve in curves],
        "ended": curves[0]["ended"],
        "cpu_seconds of training": spread([curve["points"][-1][0] for curve in curves]),
        "cpu_seconds of the process": spread([one.cpu for one in runs]),
        "wall seconds of the process": spread([one.seconds for one in runs]),
        "peak_gb": spread([one.peak_gb for one in runs]),
        "valid": [curve["points"][curve["best"] - 1][1] for curve in curves],
        "test": {name: round(value, 4) for name, value in found.items()},
        "curve": curves[0]["points"],
    }


def _our_settings(lists: Path) -> str:
    overrides = json.loads(lists.with_suffix(".job.json").read_text(encoding="utf-8"))["overrides"]
    return " and ".join(["our defaults", *overrides])


def _against_ours(bench: Bench, system: str, systems: dict[str, list[int]]) -> dict[str, Any]:
    """Return how our same model differs on test, user by user."""
    ours = f"ours-{system.split('-')[1]}"
    if ours not in systems:
        return {}
    files = [[bench.lists(name, seed) for seed in systems[name]] for name in (ours, system)]
    judged = judge(KIND, *files, bench.splits / "test.parquet")
    differences = {name: [round(x, 4) for x in (by.difference, by.low, by.high)] for name, by in judged.items()}
    return {"ours less": differences, "ours is": judged[MAIN[KIND]].verdict}


def _versions() -> dict[str, str]:
    lines = REQUIREMENTS.read_text(encoding="utf-8").lower().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    return {name: pinned[name] for name in (*SEQUENCES, "torch", "pytorch-lightning", "numpy")}


if __name__ == "__main__":
    main()
