r"""Comparisons and leaderboards for a paper: LaTeX with the rules of `booktabs`, what is best bold, what counts marked."""

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


def paper_table(found: Comparison) -> str:
    r"""Write the figures as a tabular: a line for each of them, a column for each run; needs `\usepackage{booktabs}`."""
    labels = [found.against, *found.others]
    head = " & ".join(["", *map(escaped, labels)])
    lines = [" & ".join([escaped(figure.title), *_cells(figure, labels)]) + r" \\" for figure in found.figures]
    return "\n".join([
        r"% \usepackage{booktabs}",
        rf"% $^{{+}}$ better and $^{{-}}$ worse than {escaped(found.against)}: {found.tests} paired tests, Holm, p < {LEVEL};",
        "% without a mark the two cannot be told apart. Bold: the best of its line, and what cannot be told apart from it.",
        rf"\begin{{tabular}}{{l{'r' * len(labels)}}}",
        r"\toprule",
        rf"{head} \\",
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
    ])  # fmt: skip


def paper_leaderboard(found: Leaderboard) -> str:
    r"""Write a leaderboard as a tabular: a line for each model, a column for each figure; needs `\usepackage{booktabs}`."""
    bold = {metric: _best(found, metric) for metric in found.metrics}
    seeds = len(found.seeds)
    lines = [
        " & ".join([
            _named(one),
            *(_cell(one, metric, is_bold=bold[metric][row], first=found.metric, seeds=seeds) for metric in found.metrics),
        ]) + r" \\"
        for row, one in enumerate(found.standings)
    ]  # fmt: skip
    deviations = f" $\\pm$: over {seeds} seeds; -- for one run." if seeds > 1 else ""
    return "\n".join([
        r"% \usepackage{booktabs}",
        rf"% $^{{-}}$ worse than the first by {escaped(title_of(found.metric))}: paired tests, Holm, p < {LEVEL}; bold: the best of"
        f" its column, and what cannot be told apart from it.{deviations}",
        rf"\begin{{tabular}}{{l{'r' * len(found.metrics)}}}",
        r"\toprule",
        " & ".join(["", *(escaped(title_of(metric)) for metric in found.metrics)]) + r" \\",
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
    ])  # fmt: skip


def _best(found: Leaderboard, metric: str) -> list[bool]:
    """Return whose figure is bold: the best's, and those of all that cannot be told apart from it."""
    scores = [one.scores[metric] for one in found.standings]
    best = best_of([(score.value, score.low, score.high) for score in scores], better_of(metric))
    tested = any(one.from_best is not None for one in found.standings)
    if metric != found.metric or not tested:
        return best
    return [
        one.place == 1 or one.is_same_as_best or (one.from_best is None and is_best)
        for one, is_best in zip(found.standings, best, strict=True)
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
    """Write text so that LaTeX shows it as it is."""
    return re.sub(r"[\\{}&%$#_~^]", lambda found: _SPECIAL[found[0]], text)


def _cells(figure: Figure, labels: list[str]) -> list[str]:
    bold, cells = _bold(figure, labels), []
    for label in labels:
        number = f"{figure.values[label]:.4f}"
        one = figure.differences.get(label)
        mark = {"better": "$^{+}$", "worse": "$^{-}$"}.get(one.verdict, "") if one else ""
        cells.append((rf"\textbf{{{number}}}" if label in bold else number) + mark)
    return cells


def _bold(figure: Figure, labels: list[str]) -> set[str]:
    """Return who is best: those better than the first whose intervals overlap the best's; without any, the first and its equals."""
    better = {label: one for label, one in figure.differences.items() if one.verdict == "better"}
    if len(better) < 2:
        equal = {label for label, one in figure.differences.items() if one.verdict == "noise"}
        return set(better) or {labels[0], *equal}
    best = best_of([(one.value, one.low, one.high) for one in better.values()], figure.better)
    return {label for label, is_best in zip(better, best, strict=True) if is_best}
