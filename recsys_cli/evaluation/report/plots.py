"""Draws the report's figures as SVG that takes its colours from the page, so that one file is light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recsys_cli.evaluation.report.history import History
from recsys_cli.evaluation.result import MODEL, Curve, Estimates

# Colours that stand for CSS variables: matplotlib draws with them, and the SVG gets the variables in their place.
_INK, _FAINT = "#010203", "#010204"
_SERIES = ("#010205", "#010206", "#010207", "#010208")
_CSS = {
    _INK: "var(--ink)",
    _FAINT: "var(--line)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES, start=1)},
}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be found and copied, and takes the page's font
    "svg.hashsalt": "recsys",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


def learning_curves(history: History) -> tuple[str, str] | None:
    """Draw loss and AUC over steps; the second is empty without a validation AUC, and None stands for no history at all."""
    if not history.step_loss.x and not history.train_loss.x:
        return None
    with _drawn() as loss:
        _line(loss, history.step_loss, 1, "train", markers=False, width=0.9)
        _line(loss, history.train_loss, 3, "train, by epoch")
        _line(loss, history.valid_loss, 2, "valid")
        _finish(loss, "step", "loss")
    if not history.valid_auc.x:
        return _svg(loss, "Loss over steps"), ""
    with _drawn() as area:
        _line(area, history.valid_auc, 2, "valid")
        _finish(area, "step", "AUC")
    return _svg(loss, "Loss over steps"), _svg(area, "Validation AUC over steps")


def reliability(curve: Curve) -> str:
    """Draw how often what was predicted came true."""
    with _drawn() as axes:
        _diagonal(axes, "as promised")
        _line(axes, curve, 1, MODEL)
        _unit_square(axes)
        _finish(axes, "mean prediction", "mean label")
    return _svg(axes, "Reliability curve")


def roc(curves: Mapping[str, Curve]) -> str:
    """Draw the trade-off between finding positives and false alarms, for all systems."""
    with _drawn() as axes:
        for number, (name, curve) in enumerate(curves.items(), start=1):
            _line(axes, curve, number, name, markers=False)
        _unit_square(axes)
        _finish(axes, "false positive rate", "true positive rate")
    return _svg(axes, "ROC curves")


def ranking(systems: Mapping[str, Estimates], titles: Mapping[str, str]) -> str:
    """Draw ranking metrics with their intervals, the systems below each other.

    Args:
        systems: Estimates by system.
        titles: What to call the metrics to draw, by name, such as `ndcg@10`.
    """
    with _drawn(height=1.2 + 0.22 * len(titles) * (len(systems) + 0.4)) as axes:
        step = 0.7 / len(systems)
        for number, (system, estimates) in enumerate(systems.items(), start=1):
            for place, name in enumerate(titles):
                estimate = estimates[name]
                if estimate.value is None or estimate.low is None or estimate.high is None:
                    continue
                y = place + step * (number - (len(systems) + 1) / 2)
                label = system if place == 0 else None
                axes.barh(
                    y, estimate.value, height=step * 0.86, color=_SERIES[(number - 1) % 4], alpha=0.75, label=label
                )
                axes.plot([estimate.low, estimate.high], [y, y], color=_INK, linewidth=1.2)
        axes.set_yticks(range(len(titles)), list(titles.values()))
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        _finish(axes, "mean over users, with 95 % interval", "")
    return _svg(axes, "Ranking metrics")


@contextmanager
def _drawn(*, height: float = 3.2) -> Iterator[Axes]:
    with rc_context(_STYLE):
        yield Figure(figsize=(4.6, height), layout="constrained").add_subplot()


def _line(axes: Axes, curve: Curve, number: int, label: str, *, markers: bool = True, width: float = 1.8) -> None:
    if curve.x:
        marker = "o" if markers or len(curve.x) == 1 else None
        axes.plot(
            curve.x, curve.y, color=_SERIES[(number - 1) % 4], label=label, marker=marker, markersize=4, linewidth=width
        )


def _diagonal(axes: Axes, label: str) -> None:
    axes.plot([0, 1], [0, 1], color=_INK, linewidth=1, linestyle="dashed", alpha=0.6, label=label)


def _unit_square(axes: Axes) -> None:
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)


def _finish(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if axes.get_legend_handles_labels()[0]:
        axes.get_figure().legend(loc="outside upper left", ncols=3)  # type: ignore[union-attr]


def _svg(axes: Axes, title: str) -> str:
    """Return the figure as an SVG element whose colours and font are the page's, and whose ids are its own."""
    with rc_context(_STYLE):
        out = io.StringIO()
        axes.get_figure().savefig(out, format="svg", metadata={"Date": None, "Creator": None})  # type: ignore[union-attr]
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for colour, variable in _CSS.items():
        text = text.replace(colour, variable)
    own = title.lower().replace(" ", "-")
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{own}-", text)
    text = re.sub(
        r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', rf'<svg viewBox="\1" role="img" aria-label="{title}">', text, count=1
    )
    return text.replace("'DejaVu Sans', sans-serif", "system-ui, sans-serif")
