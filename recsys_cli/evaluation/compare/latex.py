r"""LaTeX tables of comparisons and leaderboards: `booktabs` rules, best values bold, significant differences marked."""

from __future__ import annotations

import re

from recsys_cli.evaluation.compare.comparison import LEVEL, Comparison, Figure
from recsys_cli.evaluation.compare.leaderboard import Leaderboard, LeaderboardRow
from recsys_cli.evaluation.selection import MARK
from recsys_cli.metrics.named import best_of, better_of, title_of

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def paper_table(comparison: Comparison) -> str:
    r"""Return a comparison as a tabular: one row per metric, one column per run."""
    labels = [comparison.against, *comparison.others]
    notes = [
        rf"% $^{{+}}$ significantly better, $^{{-}}$ significantly worse than {escaped(comparison.against)}: {comparison.tests} "
        rf"paired tests, Holm-corrected p < {LEVEL}.",
        "% Bold: the best of its row, and values without a significant difference from it.",
    ]
    rows = [[escaped(figure.title), *_cells(figure, labels)] for figure in comparison.figures]
    return _tabular(notes, ["", *map(escaped, labels)], rows)


def paper_leaderboard(board: Leaderboard) -> str:
    r"""Return a leaderboard as a tabular: one row per model, one column per metric."""
    bold = {metric: _best(board, metric) for metric in board.metrics}
    seeds = len(board.seeds)
    rows = [
        [
            _named(one),
            *(_cell(one, metric, is_bold=bold[metric][row], first=board.metric, seeds=seeds) for metric in board.metrics),
        ]
        for row, one in enumerate(board.standings)
    ]  # fmt: skip
    deviations = f" $\\pm$: standard deviation over {seeds} seeds; -- for one run." if seeds > 1 else ""
    note = (
        rf"% $^{{-}}$ significantly worse than the best by {escaped(title_of(board.metric))}: paired tests, Holm-corrected p < "
        f"{LEVEL}. Bold: the best of its column, and values without a significant difference from it.{deviations}"
    )
    return _tabular([note], ["", *(escaped(title_of(metric)) for metric in board.metrics)], rows)


def _tabular(notes: list[str], heads: list[str], rows: list[list[str]]) -> str:
    head, *lines = (" & ".join(cells) + r" \\" for cells in (heads, *rows))
    begin = rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}"
    bottom = [r"\bottomrule", r"\end{tabular}"]
    return "\n".join([r"% \usepackage{booktabs}", *notes, begin, r"\toprule", head, r"\midrule", *lines, *bottom])


def _best(board: Leaderboard, metric: str) -> list[bool]:
    """Return a mask of bold values."""
    scores = [one.scores[metric] for one in board.standings]
    best = best_of([(score.value, score.low, score.high) for score in scores], better_of(metric))
    tested = any(one.from_best is not None for one in board.standings)
    if metric != board.metric or not tested:
        return best
    return [
        one.place == 1 or one.is_same_as_best or (one.from_best is None and is_best)
        for one, is_best in zip(board.standings, best, strict=True)
    ]


def _named(one: LeaderboardRow) -> str:
    return escaped(one.called).replace(MARK, r"$^{\dagger}$")


def _cell(one: LeaderboardRow, metric: str, *, is_bold: bool, first: str, seeds: int) -> str:
    mean, deviation = one.scores[metric].in_words(seeds=seeds)
    number = rf"\textbf{{{mean}}}" if is_bold else mean.replace("–", "--")
    worse = metric == first and one.from_best is not None and one.from_best.verdict == "worse"
    after = rf" $\pm$ {deviation.replace('–', '--')}" if deviation else ""
    return f"{number}{'$^{-}$' if worse else ''}{after}"


def escaped(text: str) -> str:
    """Escape LaTeX special characters."""
    return re.sub(r"[\\{}&%$#_~^]", lambda match: _SPECIAL[match[0]], text)


def _cells(figure: Figure, labels: list[str]) -> list[str]:
    bold, cells = _bold(figure, labels), []
    for label in labels:
        number = f"{figure.values[label]:.4f}"
        one = figure.differences.get(label)
        mark = {"better": "$^{+}$", "worse": "$^{-}$"}.get(one.verdict, "") if one else ""
        cells.append((rf"\textbf{{{number}}}" if label in bold else number) + mark)
    return cells


def _bold(figure: Figure, labels: list[str]) -> set[str]:
    """Return the labels of bold values.

    If at least two runs are significantly better than the reference: the best of them, and those with overlapping
    intervals. If one is: that run. Otherwise: the reference, and the runs without a significant difference from it.
    """
    better = {label: one for label, one in figure.differences.items() if one.verdict == "better"}
    if len(better) < 2:
        equal = {label for label, one in figure.differences.items() if one.verdict == "noise"}
        return set(better) or {labels[0], *equal}
    best = best_of([(one.value, one.low, one.high) for one in better.values()], figure.better)
    return {label for label, is_best in zip(better, best, strict=True) if is_best}
