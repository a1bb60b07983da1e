"""Cost of a peer's epoch from some of its batches, where a whole training takes too long: run by the Python of the peers' venv.

usage: batch_cost.py rectools|recbole JOB.json BATCHES

It trains for BATCHES batches and prints, as JSON, the processor seconds of each but the first, how many batches an epoch has, and
what an epoch takes at that rate. The job is one of bench_sequence_peers.py.
"""

from __future__ import annotations

import itertools
import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from job import Job


def main() -> None:
    """Train for a few batches and say what an epoch costs."""
    peer, count = sys.argv.pop(1), int(sys.argv.pop())
    job = Job.from_arguments()
    torch.set_num_threads(job.threads)
    clock, batches = {"rectools": _rectools, "recbole": _recbole}[peer](job, count)
    taken = [after - before for before, after in itertools.pairwise(clock)]
    of_batch = statistics.median(taken)
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "model": job.model,
        "batches of an epoch": batches,
        "batches measured": len(taken),
        "cpu_seconds of a batch (min / median / max)": " / ".join(
            f"{x:.2f}" for x in (min(taken), of_batch, max(taken))
        ),
        "cpu_seconds of an epoch at that rate": round(of_batch * batches, 1),
        "share of system time": round(used.ru_stime / (used.ru_stime + used.ru_utime), 2),
        "peak_gb": round(used.ru_maxrss * 1024 / 1e9, 2),
    }
    print(json.dumps(found))


def _rectools(job: Job, count: int) -> tuple[list[float], int]:
    from pytorch_lightning import Trainer, seed_everything
    from pytorch_lightning.callbacks import LambdaCallback
    from rectools.dataset import Dataset
    from run_rectools import make_model, named

    seed_everything(job.seed)
    clock: list[float] = []
    model, data = make_model(job), Dataset.construct(named(job.train))
    note = LambdaCallback(on_train_batch_end=lambda *_: clock.append(time.process_time()))
    model._build_model_from_dataset(data)
    loader = model.data_preparator.get_dataloader_train()
    trainer = Trainer(
        max_epochs=1, limit_train_batches=count, callbacks=[note], logger=False, enable_checkpointing=False
    )
    trainer.fit(model.lightning_model, loader)
    return clock, len(loader)


def _recbole(job: Job, count: int) -> tuple[list[float], int]:
    from recbole.utils import get_model
    from run_recbole import as_it_was, prepared, top_k_data

    as_it_was()
    with tempfile.TemporaryDirectory() as folder:
        config, train, _, _ = prepared(job, top_k_data(job, Path(folder)), folder)
        model: Any = get_model(config["model"])(config, train.dataset)
        optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"])
        clock: list[float] = []
        for _, batch in zip(range(count), train, strict=False):
            optimizer.zero_grad()
            model.calculate_loss(batch).backward()
            optimizer.step()
            clock.append(time.process_time())
    return clock, len(train)


if __name__ == "__main__":
    main()
