"""The model card of a bundle: model, data, metrics, use and limits, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recsys_cli.serving.served import ServedModel


def model_card(manifest: Mapping[str, Any], served: ServedModel) -> str:
    """Return the card.

    Args:
        manifest: Manifest of the bundle.
        served: The model.
    """
    run, metrics = manifest["run"], manifest.get("metrics") or {}
    figures = [f"| {name} | {value:.4g} |" for name, value in metrics.items() if isinstance(value, int | float)]
    options = [f"| {name} | {value} |" for name, value in _options(manifest, served).items()] or ["| (defaults) | |"]
    kind = "parameters" if served.model.num_parameters else "non-zero weights"
    size = f"; {manifest['num_parameters']:,} {kind}" if manifest["num_parameters"] else ""
    split = f" on {manifest['split']}" if manifest.get("split") else ""
    parts = [
        f"# {served.source.name}: {manifest.get('dataset', 'own data')}",
        f"Exported from the run `{run['name']}`; {manifest['num_users']:,} users, {manifest['num_items']:,} items"
        f"{size}.",
        "## Metrics" + split,
        "\n".join(["| metric | value |", "|---|---|", *figures]) if figures else "Not evaluated: `recsys evaluate`.",
        "## Options",
        "\n".join(["| option | value |", "|---|---|", *options]),
        "## Use",
        "\n".join(f"- {sentence}" for sentence in _uses(served, has_histories=manifest["histories"])),
    ]
    return "\n\n".join(parts) + "\n"


def _options(manifest: Mapping[str, Any], served: ServedModel) -> dict[str, Any]:
    """Return the options, with the values chosen on train."""
    chosen = {name: f"{value:g} (chosen on train)" for name, value in manifest.get("chosen", {}).items()}
    return dict(served.source.options) | chosen


def _uses(served: ServedModel, *, has_histories: bool) -> list[str]:
    model = served.model
    return [
        "Scores predict the label." if model.probabilistic else "Scores order items; they are no probabilities.",
        "A history of a new user is folded in on request."
        if served.takes_histories
        else "A user absent from train gets the most popular items"
        + (", or scores by features if a request has them." if model.by_content else "."),
        "Items absent from train are ranked by their features."
        if model.by_content
        else "Only items of train are ranked.",
        "The bundle has the user histories: treat it as personal data."
        if has_histories
        else "The bundle has no user histories: seen items are those of the request.",
    ]
