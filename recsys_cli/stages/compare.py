"""`recsys compare`: paired tests of evaluated runs, and the arms of a feedback log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recsys_cli.evaluation.compare.comparison import Comparison, compare_runs
from recsys_cli.evaluation.compare.pages import comparison_page
from recsys_cli.serving.feedback.arms import Arms, arms_of
from recsys_cli.stages.serve import shares_of
from recsys_cli.workspace import Workspace, check_output, write_text


def compare(
    names: Sequence[str], workspace: Workspace, *, against: str | None = None, html: Path | None = None
) -> Comparison:
    """Test the differences between runs on the same users and rows.

    Names may be prefixes or suffixes; the reference is the first run by default.

    Raises:
        MissingArtifactError: A run does not exist, or is not evaluated.
        ConfigError: There are fewer than two runs, or their evaluation tasks differ.
        DataError: A file of an evaluation is unreadable.
    """
    if html is not None:
        check_output(html)
    runs = [workspace.run(name) for name in names]
    if against is not None:
        first = workspace.run(against)
        runs = [first, *(run for run in runs if run != first)]
    comparison = compare_runs([run.evaluated() for run in runs])
    if html is not None:
        write_text(html, comparison_page(comparison))
    return comparison


def compare_arms(
    folder: Path, given: Sequence[str], *, against: str | None = None, positive_above: float | None = None
) -> Arms:
    """Compare the traffic shares of `recsys serve`, with shares such as `main=0.9`; see `arms_of`."""
    names = dict.fromkeys(part.partition("=")[0] for part in ",".join(given).split(",") if part)
    shares = shares_of(given, names, option="") if given else {}
    return arms_of(folder, shares, against=against, positive_above=positive_above)
