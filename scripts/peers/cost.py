"""Processor seconds to the same quality, from the curves of two systems, and the table that bench_sequence_peers.py prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Points = Sequence[Sequence[float]]


def seconds_to(curve: Points, quality: float) -> float | None:
    """Return the processor seconds after the first epoch with at least this quality; None without one."""
    return next((seconds for seconds, reached in curve if reached >= quality), None)


def compared(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return for each peer and each of our models: the peer's best valid NDCG@10, and the seconds of both to reach it."""
    found = {}
    for peer, row in rows.items():
        if peer.startswith("ours"):
            continue
        quality = max(reached for _, reached in row["curve"])
        theirs = seconds_to(row["curve"], quality)
        for ours in (name for name in rows if name.startswith("ours")):
            seconds = seconds_to(rows[ours]["curve"], quality)
            found[f"{ours} to {peer}"] = {
                "valid ndcg@10": quality,
                "peer": theirs,
                "ours": seconds,
                "times": round(theirs / seconds, 1) if seconds and theirs else None,
            }
    return found


def show(rows: dict[str, dict[str, Any]], ratios: dict[str, dict[str, Any]]) -> None:
    """Print the table of cost and quality, and that of the same quality."""
    columns = (
        "system",
        "seeds",
        "epochs",
        "CPU s of training",
        "GB",
        "valid NDCG@10",
        "test NDCG@10",
        "HR@10",
        "ours less",
        "ended",
    )
    table = Table(*columns, title="one thread, CPU", title_justify="left")
    for name, row in rows.items():
        less = "{:+.4f} [{:+.4f}, {:+.4f}]".format(*row["ours less"]["ndcg@10"]) if "ours less" in row else ""
        figures = f"{row['test']['ndcg@10']:.4f}", f"{row['test']['hr@10']:.4f}"
        valid, epochs = ", ".join(f"{value:.4f}" for value in row["valid"]), ", ".join(map(str, row["epochs"]))
        training = row["cpu_seconds of training"]
        table.add_row(
            name, str(len(row["seeds"])), epochs, training, row["peak_gb"], valid, *figures, less, row["ended"]
        )
    same = Table("CPU s to the peer's best valid NDCG@10", "it", "peer", "ours", "times", title_justify="left")
    for name, found in ratios.items():
        same.add_row(
            name, f"{found['valid ndcg@10']:.4f}", *(str(found[key] or "never") for key in ("peer", "ours", "times"))
        )
    for each in (table, same):
        Console(width=200).print(each)
