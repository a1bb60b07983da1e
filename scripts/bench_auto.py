"""Wall clock and answer of `recsys auto` in some minutes, on a quiet machine and beside busy processes.

usage: bench_auto.py TABLE … [--minutes 1] [--rounds 2] [--busy 0 2]

Every race has a workspace of its own. By table and number of busy processes: the share of the minutes that the command took, the
winners, and the winner's metric on test in relation to that of EASE there. The result goes to scripts/results/auto.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench_busy import busy
from measure import keep, machine, run, spread

RECSYS = str(Path(sys.executable).with_name("recsys"))


def main() -> None:
    """Run the races and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 2], help="numbers of busy processes beside it")
    given = parser.parse_args()
    rows = []
    for table in given.tables:
        for number in given.busy:
            with busy(number):
                races = [_race(table, given.minutes) for _ in range(given.rounds)]
            ratios = [one["to_ease"] for one in races if one["to_ease"] is not None]
            rows.append({
                "table": Path(table).name, "minutes": given.minutes, "busy": number, "races": len(races),
                "share_of_the_time": spread([one["share"] for one in races], 3),
                "winners": sorted({one["winner"] for one in races}),
                "to_ease_on_test": spread(ratios, 3) if ratios else None,
            })  # fmt: skip
            print(json.dumps(rows[-1]))
    keep("auto", {"machine": machine("torch"), "rows": rows})


def _race(table: str, minutes: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = ["--minutes", str(minutes), "--out", f"{folder}/found.yaml"]
        made = run([RECSYS, "--json", "--quiet", "--workspace", folder, "auto", table, *out])
    found = json.loads(made.output[made.output.index("{") :])
    scores = {row["label"]: next(iter(row["scores"].values()))["value"] for row in found["board"]}
    own, ease = scores.get(found["winner"]), scores.get("ease")
    return {
        "share": made.seconds / (60 * minutes), "winner": found["winner"], "to_ease": own / ease if own and ease else None
    }  # fmt: skip


if __name__ == "__main__":
    main()
