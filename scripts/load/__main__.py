"""A load generator for HTTP servers: fixed arrival rate (open loop), every latency recorded.

    python -m scripts.load http://127.0.0.1:8000/recommend --bodies requests.jsonl --rate 800 --seconds 60
    python -m scripts.load http://127.0.0.1:8000/recommend --bodies requests.jsonl --rate 0 --seconds 10

Requests arrive by a Poisson process whether or not the server keeps up; a latency counts from the arrival, so that
queueing shows (the server scenario of MLPerf Inference). A rate of 0 is a closed loop: each connection sends the next
request after the answer, which finds the peak rate.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from scripts.load.generator import Load, generate


def main() -> int:
    """Run the load and print the result as JSON; the exit code is 1 after any failed request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--bodies", type=Path, required=True, help="JSON request bodies, one per line, used in turn")
    parser.add_argument("--rate", type=float, default=0, help="arrivals per second; 0: closed loop")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    line = parser.parse_args()
    bodies = [body for body in line.bodies.read_bytes().splitlines() if body.strip()]
    result = generate(Load(line.url, bodies, line.rate, line.seconds, line.connections, line.seed))
    print(json.dumps(result))
    return int(bool(result["failed"]))


if __name__ == "__main__":
    sys.exit(main())
