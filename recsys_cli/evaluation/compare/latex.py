r"""Comparisons and leaderboards for a paper: LaTeX with the rules of `booktabs`, what is best bold, what counts marked."""

from __future__ import annotations

import re
from collections.abc import Mapping

from recsys_cli.evaluation.compare.comparison import LEVEL, Comparison, Figure
from recsys_cli.evaluation.compare.leaderboard import Leaderboard, Standing, badness
from recsys_cli.evaluation.metrics.named import better_of, title_of

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
        "% without a mark the two cannot be told apart. Bold: the best of its line.",
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
        " & ".join([escaped(one.called), *(_cell(one, metric, bold, seeds=seeds) for metric in found.metrics)]) + r" \\"
        for one in found.standings
    ]
    deviations = f" $\\pm$: over {seeds} seeds; -- for one run." if seeds > 1 else ""
    return "\n".join([
        r"% \usepackage{booktabs}",
        rf"% $^{{-}}$ worse than the first by {escaped(title_of(found.metric))}: paired tests, Holm, p < {LEVEL}; bold: the best of"
        f" its column.{deviations}",
        rf"\begin{{tabular}}{{l{'r' * len(found.metrics)}}}",
        r"\toprule",
        " & ".join(["", *(escaped(title_of(metric)) for metric in found.metrics)]) + r" \\",
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
    ])  # fmt: skip


def _best(found: Leaderboard, metric: str) -> float | None:
    values = [one.scores[metric].value for one in found.standings]
    return min(values, key=lambda value: badness(value, better_of(metric)))


def _cell(one: Standing, metric: str, bold: Mapping[str, float | None], *, seeds: int) -> str:
    score = one.scores[metric]
    mean, deviation = score.in_words(seeds=seeds)
    number = (
        rf"\textbf{{{mean}}}" if score.value is not None and score.value == bold[metric] else mean.replace("–", "--")
    )
    worse = metric == next(iter(bold)) and one.from_best is not None and one.from_best.verdict == "worse"
    after = rf" $\pm$ {deviation.replace('–', '--')}" if deviation else ""
    return f"{number}{'$^{-}$' if worse else ''}{after}"


def escaped(text: str) -> str:
    """Write text so that LaTeX shows it as it is."""
    return re.sub(r"[\\{}&%$#_~^]", lambda found: _SPECIAL[found[0]], text)


def _cells(figure: Figure, labels: list[str]) -> list[str]:
    choose = max if figure.better == "higher" else min
    best = choose(figure.values.values())
    cells = []
    for label in labels:
        number = f"{figure.values[label]:.4f}"
        one = figure.differences.get(label)
        mark = {"better": "$^{+}$", "worse": "$^{-}$"}.get(one.verdict, "") if one else ""
        cells.append((rf"\textbf{{{number}}}" if figure.values[label] == best else number) + mark)
    return cells
