"""The `protocol` section: the published figures of an evaluation, next to the results of `recsys bench`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationError

from recsys_cli.config.bench import BenchConfig
from recsys_cli.config.section import Section
from recsys_cli.errors import ConfigError
from recsys_cli.metrics import ImpressionMetric, RankingMetric
from recsys_cli.metrics.lists import PSNDCG
from recsys_cli.metrics.named import check_reported, metric_named
from recsys_cli.registry import MODELS, find_model, suggest


class PublishedRow(Section):
    """A model with published figures."""

    model: str
    """Name of the model in the publication."""
    source: str
    """Publication of the figures."""
    figures: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(min_length=1)
    """Value by metric of `bench.metrics`; that of a ranking metric is at most 1."""
    ours: str | None = None
    """Model to compare with: the label of a bench entry, or a name for the best of its entries. None: the best of all."""


class ProtocolConfig(Section):
    """A published protocol: figures of other models on the same data, split, candidates and metrics."""

    paper: str
    """Publication of the protocol, with its conventions."""
    rows: dict[Literal["train", "valid", "test"], PositiveInt] = Field(default_factory=dict)
    """Rows of the published splits, to verify the data."""
    notes: tuple[str, ...] = ()
    """Known differences to the published evaluation."""
    variants: tuple[Literal["ties", "time"], ...] = ("ties", "time")
    """Further evaluations of the same models, where the data has times: with `ties` shuffled, and by global `time`."""
    published: tuple[PublishedRow, ...] = Field(min_length=1)
    """Published figures, as in the publications."""


def protocol_checks(
    values: Mapping[str, Any], *, replaced: bool = False
) -> Iterator[tuple[tuple[str | int, ...], Callable[[], None]]]:
    """Yield the key and the check of each metric and each model of ours in the protocol.

    Args:
        values: Values of a config. Malformed entries are skipped: the validation of the section reports them.
        replaced: Whether an override has replaced the models of the bench.
    """
    section = values.get("protocol")
    published = section.get("published") if isinstance(section, Mapping) else None
    labels = _labels(values.get("bench"))
    for position, row in enumerate(published if isinstance(published, list) else ()):
        figures = row.get("figures") if isinstance(row, Mapping) else None
        key = ("protocol", "published", position)
        for metric, value in figures.items() if isinstance(figures, Mapping) else ():
            yield (*key, "figures", metric), partial(_check_figure, str(metric), value)
        if isinstance(row, Mapping) and isinstance(row.get("ours"), str):
            yield (*key, "ours"), partial(_check_ours, row["ours"], labels, replaced=replaced)


def _labels(bench: Any) -> tuple[str, ...]:
    with suppress(ValidationError):
        return BenchConfig.model_validate(bench).labels
    return ()


def _check_figure(metric: str, value: Any) -> None:
    check_reported(metric)
    kind = metric_named(metric.partition("@")[0])
    in_unit = isinstance(kind, RankingMetric | ImpressionMetric) or kind is PSNDCG
    if in_unit and isinstance(value, int | float) and value > 1:
        raise ConfigError(f"has to be at most 1, not {value}", hint="write 31 % as 0.31")


def _check_ours(ours: str, labels: tuple[str, ...], *, replaced: bool) -> None:
    if ours in labels:
        return
    try:
        find_model(ours)
    except ConfigError as error:
        near = suggest(ours, [*labels, *MODELS])
        hint = f"labels of the bench: {', '.join(labels)}; `recsys ls models` lists models" if labels else error.hint
        if replaced:
            hint = f"the override of bench.models replaced all labels: add {{name: MODEL, label: {ours}}} to it; {hint}"
        raise ConfigError(f"{ours!r} is no label of bench.models and no model{near}", hint=hint) from error
