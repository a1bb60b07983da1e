"""The soak: kills, equal commands at once, full disks, damaged files and odd inputs, with a seed that repeats it.

    python -m scripts.soak                      all of it, about an hour
    python -m scripts.soak --sample             a few of each, about a minute
    python -m scripts.soak --only damage --seed 3

It ends with 1 where something did not hold, and prints what is needed to do that again.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from scripts.soak import clusters, concurrent, damage, full_disk, kills, odd_inputs
from scripts.soak.arena import Outcome, preload, template

PARTS = {"kills": (kills, 100, 1), "concurrent": (concurrent, 10, 1), "full disk": (full_disk, 20, 1),
         "damage": (damage, 200, 4), "clusters": (clusters, 300, 2)}  # fmt: skip


def main() -> int:
    """Run the parts that are asked for; return the exit code."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seed", type=int, default=random.randrange(10_000))
    asked.add_argument("--only", action="append", choices=[*PARTS, "odd inputs"])
    asked.add_argument("--count", type=int, help="instead of the number of each part")
    asked.add_argument("--sample", action="store_true", help="a few of each")
    wanted = asked.parse_args()
    print(f"seed {wanted.seed}", flush=True)
    preload()
    failed = False
    with tempfile.TemporaryDirectory(prefix="recsys-soak-") as name:
        base = template(Path(name) / "base")
        for part, (module, full, few) in PARTS.items():
            if not wanted.only or part in wanted.only:
                folder = Path(name) / part
                count = wanted.count or (few if wanted.sample else full)
                started = time.monotonic()
                outcome = module.main(wanted.seed, count, base.copy(folder / "base"), folder)
                failed |= _told(outcome, time.monotonic() - started)
    if not wanted.only or "odd inputs" in wanted.only:
        found = odd_inputs.main(wanted.seed, wanted.count or (4 if wanted.sample else 200))
        print(f"odd inputs: {json.dumps(found['codes'])}, {len(found['failures'])} failures", flush=True)
        failed |= bool(found["failures"])
    return int(failed)


def _told(outcome: Outcome, seconds: float) -> bool:
    print(
        f"{outcome.name}: {json.dumps(outcome.counts)} in {seconds:.0f} s, {len(outcome.failures)} failures", flush=True
    )
    return bool(outcome.failures)


if __name__ == "__main__":
    sys.exit(main())
