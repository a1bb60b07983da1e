"""A proposal as commented YAML."""

from __future__ import annotations

import shlex
from typing import Any

from recsys_cli.config.yaml12 import quoted
from recsys_cli.detect.proposal import Proposal
from recsys_cli.detect.task import Task
from recsys_cli.errors import listed
from recsys_cli.ops.expression import columns, parse

_BLOCK = frozenset({"interactions", "tables"})


def config_text(proposal: Proposal, task: Task, *, source: str, path: str) -> str:
    """Return the text of the config; `source` names the table, `path` the file to write."""
    lines = [
        f"# A recommender from {source}, written by recsys init. Edit it, then run all stages:",
        "#",
        f"#   recsys run {shlex.quote(path)}",
        "#",
        "# or each stage: recsys etl, recsys train, recsys evaluate.",
        f"# Task: {task.words}.",
    ]
    for name, section in proposal.sections.items():
        if section:
            lines += ["", f"{name}:", *_section(name, section, proposal)]
            lines += _ops(proposal, task) if name == "features" else []
    return "\n".join(lines) + "\n"


def _section(name: str, section: dict[str, Any], proposal: Proposal) -> list[str]:
    lines = []
    for key, value in section.items():
        comment = proposal.comments.get(f"{name}.{key}", "")
        if key == "interactions" and not isinstance(value, dict):
            comment = "a path or a list of paths, relative to the working directory"
        if key in _BLOCK and isinstance(value, dict):
            lines += [f"  {key}:", *(f"    {quoted(inner)}: {_flow(one)}" for inner, one in value.items())]
        else:
            lines.append(f"  {key}: {quoted(value)}" + (f"  # {comment}" if comment else ""))
    return lines


def _ops(proposal: Proposal, task: Task) -> list[str]:
    lines = ["  ops:"]
    for op, comment in proposal.ops:
        lines.append(f"    - {_flow(op)}" + (f"  # {comment}" if comment else ""))
        if op["op"] == "Categorify" and proposal.unused:
            names = listed(proposal.unused, shown=quoted)
            lines.append(f"    # Unused columns: {names}. Add categorical ones to the list above.")
        if op["op"] == "Categorify" and proposal.left_out:
            names = ", ".join(f"{quoted(name)} (AUC {auc:.2f})" for name, auc in proposal.left_out.items())
            lines.append(
                f"    # Left out: {names}. Each alone predicts the label: probably known only after the outcome."
            )
        if not task.ranks and op.get("output") == "label" and ">" in op["expression"]:
            rating = next(iter(_names(op["expression"])))
            number = _flow({"name": rating, "task": "regression"})
            lines.append(
                f"    # To predict {quoted(rating)} itself, set the label to {number} and remove the line above."
            )
    return lines


def _flow(value: Any) -> str:
    """Return a value on one line, with the keys of a mapping in their order."""
    if not isinstance(value, dict):
        return quoted(value)
    return "{" + ", ".join(f"{quoted(key)}: {_flow(one)}" for key, one in value.items()) + "}"


def _names(expression: str) -> list[str]:
    return sorted(columns(parse(expression)))
