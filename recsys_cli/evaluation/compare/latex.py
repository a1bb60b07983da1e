r"""The table of a comparison for a paper: LaTeX with the rules of `booktabs`, the best of a line bold, what counts marked."""

from __future__ import annotations

import re

from recsys_cli.evaluation.compare.comparison import LEVEL, Comparison, Figure

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
