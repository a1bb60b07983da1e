"""`recsys compare`: paired tests of evaluated runs, from what their evaluations have kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recsys_cli.evaluation.compare.comparison import Comparison
from recsys_cli.evaluation.compare.page import show
from recsys_cli.evaluation.compare.runs import compare_runs
from recsys_cli.workspace import Workspace, write_text


def compare(
    names: Sequence[str], workspace: Workspace, *, against: str | None = None, html: Path | None = None
) -> Comparison:
    """Test the differences between runs on the same users and rows.

    Args:
        names: Runs, by their names or the beginnings or ends of them.
        workspace: Where they are.
        against: The run that the others are compared with, which need not be among them; the first where left out.
        html: Where to write the page.

    Raises:
        MissingArtifactError: There is no such run, or it is not evaluated.
        ConfigError: Fewer than two runs, or they were not asked the same.
        DataError: What an evaluation kept cannot be read.
    """
    runs = [workspace.run(name) for name in names]
    if against is not None:
        first = workspace.run(against)
        runs = [first, *(run for run in runs if run != first)]
    found = compare_runs([run.evaluated() for run in runs])
    if html is not None:
        write_text(html, show(found))
    return found
