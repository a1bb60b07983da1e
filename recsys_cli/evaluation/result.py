"""What an evaluation found, as frozen types: the treaty between measuring, evaluation.json, the table and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import DataError
from recsys_cli.evaluation.selection import MARK, Selection
from recsys_cli.workspace import read_evaluation

if TYPE_CHECKING:
    from recsys_cli.etl.frames import Library

MODEL = "model"
"""Name of the system that is being evaluated; the others are baselines."""


Found = TypeVar("Found")


def renamed(systems: Mapping[str, Found], own: str) -> dict[str, Found]:
    """Return what was found by system with the model under its own name; a baseline of the same name says that it is one."""
    names = {name: own if name == MODEL else name for name in systems}
    return {
        (f"{called} (baseline)" if called == own.removesuffix(f" {MARK}") and name != MODEL else called): systems[name]
        for name, called in names.items()
    }


class Frozen(BaseModel):
    """What all results share: they do not change, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Estimate(Frozen):
    """One figure and its 95 % interval; None where it is not defined, such as the AUC of rows of one class."""

    value: float | None
    """The figure over all rows or users."""
    low: float | None = None
    """Lower end of the interval."""
    high: float | None = None
    """Upper end of the interval."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval; None where there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)


Estimates = dict[str, Estimate]
"""By metric name, such as `auc` or `ndcg@10`."""


class Curve(Frozen):
    """Points of a line to draw."""

    x: tuple[float, ...]
    """Where, such as the false positive rate or the mean prediction of a bin."""
    y: tuple[float, ...]
    """What, such as the true positive rate or the mean label of a bin; as long as x."""


class Counts(Frozen):
    """How much the figures rest on."""

    rows: int
    """Rows of the split."""
    positive: int
    """Those with label 1; where labels are numbers, those above the mean of train."""
    train_rows: int
    """Rows that the model and the baselines learnt from."""
    unknown_user_rows: int
    """Rows of the split whose user has no id of its own (unseen in train, or null)."""
    unknown_item_rows: int
    """The same for items."""
    users: int
    """Users of the split, as far as they can be told apart."""
    users_without_relevant: int
    """Those of them with nothing to find; left out of the ranking."""
    users_eligible: int
    """The others: those that a full ranking would rank for."""
    users_ranked: int
    """Those that were ranked for: all, or a sample."""
    users_without_recommendations: int
    """Ranked users who have seen all candidates; they count as zero."""
    users_new: int = 0
    """Ranked users whom train does not know."""
    users_new_with_history: int = 0
    """Those of them of whom something is known before what they should find."""
    users_folded_in: int = 0
    """Users of a split by user, whom train does not have: a part of their rows describes them."""
    candidates: int
    """Items that were ranked."""
    candidates_cold: int = 0
    """Those of them that train does not know: they are in the joined item table."""
    relevant: int
    """Interactions that the rankings should find, over the ranked users."""
    relevant_unreachable: int
    """Those of them whose item is no candidate: misses for every system."""

    @property
    def is_sample(self) -> bool:
        """Whether the ranking figures are of a sample of users."""
        return self.users_ranked < self.users_eligible

    @property
    def users_in_words(self) -> str:
        """Whom the ranking figures are of; has to stand wherever they are shown."""
        new = f", {self.users_new:,} of them new" if self.users_new and not self.users_folded_in else ""
        if self.is_sample:
            return f"a sample of {self.users_ranked:,} of {self.users_eligible:,} users{new}"
        return f"all {self.users_ranked:,} users{new}"


class Protocol(Frozen):
    """How it was measured, in words for the reader."""

    split: str
    """Which rows."""
    candidates: str
    """What is ranked; begins with SAMPLED where that is not the full catalogue."""
    seen: str
    """What is filtered."""
    relevant: str
    """What should be found."""
    users: str
    """Who is ranked for."""
    intervals: str
    """What the intervals are."""


class Ceiling(Frozen):
    """What the generator of synthetic data allows at best."""

    label: str
    """The label that it holds for."""
    auc: float
    """AUC of the score without its noise."""


class Cohort(Frozen):
    """The same figures for a part of the users or of the items."""

    name: str
    """Such as `tail items`."""
    about: str
    """Which they are, in words."""
    rows: int
    """Rows of the split that belong to it."""
    users: int
    """Users whose rankings are measured; 0 where its rankings are not."""
    pointwise: dict[str, Estimates]
    """By system: the AUC of its rows, or of labels that are numbers the RMSE."""
    ranking: dict[str, Estimates]
    """By system: the rankings of its users; or, of items, how well those of its items that should be found are found."""


class Measurements(Frozen):
    """What measuring a model found."""

    split: str
    """`valid` or `test`."""
    pointwise: dict[str, Estimates]
    """By system, the model first: how well single rows are predicted."""
    ranking: dict[str, Estimates]
    """By system, the model first: how well the catalogue is ranked; empty where it could not be, and `notes` says why."""
    beyond: dict[str, Estimates]
    """By system, the model first: what the rankings show, whether right or wrong; figures of all lists together have no
    interval."""
    cohorts: tuple[Cohort, ...]
    """The same for parts of the users and items; those without rows, and those that are everybody, are left out."""
    reliability: Curve
    """Mean label over mean prediction of the model, by bins of equal mass; empty where its scores are no logits, and of labels
    that are numbers."""
    roc: dict[str, Curve]
    """True over false positive rate, by system; none of labels that are numbers."""
    precision_recall: dict[str, Curve]
    """Precision over recall, by system; none of labels that are numbers."""
    label_mean: float | None = None
    """Of a label that is a number, its mean in train: then figures of rows are of errors, in its units. None where it is 0 or 1."""
    counts: Counts
    """How much it rests on."""
    protocol: Protocol
    """How it was measured."""
    verdict: tuple[str, ...] = ()
    """Whether the model beats the baselines by paired tests, in sentences."""
    notes: tuple[str, ...] = ()
    """What a reader of the figures has to know."""
    seconds: dict[str, float]
    """How long the parts took."""


class Evaluation(Measurements):
    """Everything about one evaluation of one run."""

    key: str
    """What it depends on, as one hash: the run and the config."""
    run: str
    """Name of the run's folder."""
    model: str
    """Name of the model."""
    dataset: str
    """What its data is called: the name of the dataset, or of the files that it was read from."""
    selected: tuple[Selection, ...] = ()
    """What the measured rows chose themselves, the epoch or the trial: then figures of the model are too good."""
    ceiling: Ceiling | None = None
    """What the data allows, where that is known."""
    device: str
    """Where the model was scored."""
    config: EvaluateConfig
    """What was asked for; its seed decides the sample and the resamples."""

    @property
    def systems(self) -> dict[str, Estimates]:
        """All figures by system, the model first, and then by metric."""
        found: dict[str, Estimates] = {}
        for part in (self.ranking, self.pointwise, self.beyond):
            for system, estimates in part.items():
                found[system] = found.get(system, {}) | estimates
        return found

    @property
    def metrics(self) -> Estimates:
        """The model's figures by metric, such as `ndcg@10` or `auc`."""
        return self.systems.get(MODEL, {})

    def to_frame(self, library: Library = "polars") -> Any:
        """Return all figures as a DataFrame of `polars` or `pandas`, or as an Arrow table (`arrow`).

        Columns: system, metric, value, low, high.
        """
        from recsys_cli.etl.frames import rows_to_frame

        rows = ((system, name, *one) for system, found in self.systems.items() for name, one in _values(found))
        return rows_to_frame(("system", "metric", "value", "low", "high"), rows, library)

    @classmethod
    def read(cls, path: Path) -> Evaluation:
        """Read what the evaluate stage wrote.

        Raises:
            MissingArtifactError: There is no such file.
            DataError: The file is damaged, or not of this version.
        """
        found = {name: value for name, value in read_evaluation(path).items() if name != "files"}
        try:
            return cls.model_validate(found)
        except ValueError as error:
            raise DataError(
                f"{path}: not an evaluation that this version reads: {error}", hint="recsys evaluate --force"
            ) from error


def _values(found: Estimates) -> Iterator[tuple[str, tuple[float | None, ...]]]:
    for name, one in found.items():
        yield name, (one.value, one.low, one.high)
