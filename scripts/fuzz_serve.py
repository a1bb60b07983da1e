"""Requests generated from the OpenAPI document against a running server; no answer may be a 5xx or break the document.

    python -m scripts.fuzz_serve http://127.0.0.1:8000 --requests 10000

The exit code is 1 after any failure; schemathesis prints a curl command for each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import httpx

_CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")


def main() -> int:
    """Run schemathesis."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--requests", type=int, default=10_000, help="least number of generated requests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--token", help="bearer token")
    line = parser.parse_args()
    paths = httpx.get(f"{line.url}/openapi.json", timeout=30).json()["paths"]
    with_values = [
        (path, method)
        for path, methods in paths.items()
        for method, one in methods.items()
        if one.get("parameters") or one.get("requestBody")
    ]
    examples = -(-line.requests // len(with_values))
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{line.url}/openapi.json", "--checks", ",".join(_CHECKS),
        "--max-examples", str(examples), "--seed", str(line.seed), "--phases", "fuzzing", "--mode", "all",
        "--generation-deterministic", "--request-timeout", "30", "--continue-on-failure",
    ]  # fmt: skip
    if line.token:
        command += ["--header", f"Authorization: Bearer {line.token}"]
    print(f"{len(with_values)} operations with {examples} requests each", flush=True)
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
