"""Evaluation results as frozen types: the interface between `measure`, evaluation.json, tables and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import DataError, UnknownNameError
from recsys_cli.frozen import Frozen
from recsys_cli.page import share
from recsys_cli.tabular import Tabular, rows_to_arrow
from recsys_cli.workspace import read_evaluation

if TYPE_CHECKING:
    import pyarrow as pa


Selection = Literal["epoch", "trial", "model"]
"""Choice made on the reported rows: the best epoch of a run, the best trial of a study, or the best candidate of `auto`."""

_MANY_COLD = 0.2
"""Share of users with only cold items from which on it is reported."""
MARK = "†"
"""Mark behind the name of a model with optimistic metrics."""


def marked(name: str, selected: Sequence[Selection]) -> str:
    """Return a model's name, marked if its metrics are optimistic."""
    return f"{name} {MARK}" if selected else name


def note(selected: Sequence[Selection], split: str, *, has_test: bool) -> str:
    """Explain the selection bias and how to avoid it."""
    choices, verb = " and ".join(selected), "was" if len(selected) == 1 else "were"
    instead = (
        "measure on test: recsys evaluate evaluate.split=test"
        if has_test
        else "for unbiased metrics, add a test split: recsys run CONFIG split.test=0.1"
    )
    return f"{MARK} The best {choices} {verb} chosen on {split}, so the model's metrics are optimistic; {instead}."


def legend(by_model: Mapping[str, Sequence[Selection]], split: str) -> str | None:
    """Explain the mark for several models in one sentence; None if no model has it."""
    choices = dict.fromkeys(choice for selected in by_model.values() for choice in selected)
    if not choices:
        return None
    return f"{MARK} the best {' or '.join(choices)} was chosen on {split}, so its metrics are optimistic"


MODEL = "model"
"""Name of the evaluated system; all others are baselines."""


Result = TypeVar("Result")


def renamed(systems: Mapping[str, Result], own: str, *, is_repeated: bool = False) -> dict[str, Result]:
    """Return results by system with the model's own name; the baseline of the same name gets a suffix; repeated, it is left out."""
    same = own.removesuffix(f" {MARK}")
    names = {name: own if name == MODEL else f"{same} (baseline)" if name == same else name for name in systems}
    return {shown: systems[name] for name, shown in names.items() if name != same or not is_repeated}


def repeats_baseline(ranking: Mapping[str, object], own: str) -> bool:
    """Whether a model has the figures of the baseline of its name."""
    return MODEL in ranking and ranking.get(own.removesuffix(f" {MARK}")) == ranking[MODEL]


class ByName(dict[str, Result]):
    """Results by name; the error of an unknown name lists the known ones."""

    def __missing__(self, name: object) -> Result:
        """Raise the error of an unknown name."""
        cut_off = (
            "set the cut-offs in evaluate.k, such as evaluate.k=[5,10], and evaluate again"
            if "@" in str(name)
            else None
        )
        raise UnknownNameError(f"no {name!r}; there are {', '.join(self) or 'none'}", hint=cut_off)


class Estimate(Frozen):
    """A metric with its 95 % confidence interval; None if undefined, such as the AUC of rows of one class."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval; None without one."""
        return None if self.low is None or self.high is None else (self.low, self.high)


Estimates = dict[str, Estimate]
"""By metric name, such as `auc` or `ndcg@10`."""


class Curve(Frozen):
    """Points of a line plot."""

    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()


class Counts(Frozen):
    """Counts of rows, users and items behind the metrics."""

    rows: int
    positive: int
    """Rows with label 1; for numeric labels, rows with a label above the mean of train."""
    train_rows: int
    """Training rows of the model and the baselines."""
    unknown_user_rows: int
    """Rows of the split with a user absent from train, or null."""
    unknown_item_rows: int
    """Rows of the split with an item absent from train, or null."""
    users: int
    """Users of the split with a distinct id."""
    users_without_relevant: int
    """Users without relevant held-out items; left out of the ranking."""
    users_eligible: int
    users_ranked: int
    """Ranked users: all eligible users, or a sample."""
    users_without_recommendations: int
    """Ranked users who have seen all candidates; they count as zero."""
    users_new: int = 0
    users_new_with_history: int = 0
    """Ranked cold-start users with interactions before their ground truth."""
    users_folded_in: int = 0
    """Users after a split by user: absent from train, with a part of their rows as history."""
    each_next_item: bool = False
    """Whether each next item of these users is a ranking, counted as a user here."""
    candidates: int
    candidates_cold: int = 0
    """Candidates absent from train, from the joined item table."""
    relevant: int
    """Ground-truth interactions of the ranked users."""
    relevant_unreachable: int
    """Ground-truth interactions with items outside the candidates: misses for every system."""
    relevant_cold: int = 0
    """Ground-truth interactions with cold items, of the candidates or outside."""
    users_only_cold: int = 0
    """Ranked users with such items only in their ground truth."""
    pairs: int = 0
    """Distinct relevant (user, item) pairs of the split, of all users and of items with an id."""
    pairs_repeated: int = 0
    """Pairs with an earlier interaction of the user; in no ranking unless `evaluate.repeats` or given candidates."""
    given_left_out: int = 0
    """Given rows of the ranked users that are neither relevant nor of one of the candidates: in no ranking."""

    @property
    def only_cold_in_words(self) -> str | None:
        """The users with only cold items in their ground truth, in words; None for few."""
        if self.users_only_cold <= _MANY_COLD * self.users_ranked:
            return None
        of_all = f"{self.users_only_cold:,} of {self.users_ranked:,} ranked users"
        return f"{of_all} ({share(self.users_only_cold, self.users_ranked)}) have only cold items in their ground truth"

    @property
    def is_sample(self) -> bool:
        """Whether only a sample of users is ranked."""
        return self.users_ranked < self.users_eligible

    @property
    def candidates_in_words(self) -> str:
        """The candidates in words: a dataset may have more items than these."""
        cold = f" and {self.candidates_cold:,} cold items of the item table" if self.candidates_cold else ""
        return f"{self.candidates - self.candidates_cold:,} items with a train row{cold}"

    @property
    def users_in_words(self) -> str:
        """The ranked users in words; shown next to all ranking metrics."""
        unit = "next items" if self.users_folded_in and self.each_next_item else "users"
        new = f", {self.users_new:,} of them cold-start" if self.users_new and not self.users_folded_in else ""
        if self.is_sample:
            return f"a sample of {self.users_ranked:,} of {self.users_eligible:,} {unit}{new}"
        return f"all {self.users_ranked:,} {unit}{new}"


class Protocol(Frozen):
    """The evaluation protocol in words, sentence by sentence."""

    split: str
    candidates: str
    """Candidates; starts with SAMPLED unless they are the full catalog."""
    seen: str
    relevant: str
    users: str
    intervals: str


class Ceiling(Frozen):
    """Best possible metric on synthetic data."""

    label: str
    auc: float
    """AUC of the generator's score without noise."""


class Cohort(Frozen):
    """Metrics of a group of users or items, such as `tail items`."""

    name: str
    about: str
    rows: int
    users: int
    """Users with ranking metrics; 0 without rankings."""
    pointwise: dict[str, Estimates]
    """By system: AUC of the rows, or RMSE for numeric labels."""
    ranking: dict[str, Estimates]
    """By system: ranking metrics of the users; of an item cohort, over users with such items in their ground truth,
    counting only these."""


class StageFigures(Frozen):
    """A stage of a model with several, on the users of the ranking; the last one is the whole model."""

    name: str
    k: int | None = None
    """Candidates of a generator."""
    recall: Estimate | None = None
    """Share of the relevant items among the candidates; None for a stage without its own."""
    ndcg: Estimate | None = None
    """NDCG at the first cut-off of the stage by its own; None for a union of candidates."""
    gain: float | None = None
    """NDCG of the whole model minus that of the stage, with the ends of its paired 95 % interval."""
    gain_low: float | None = None
    gain_high: float | None = None
    verdict: Literal["better", "worse", "noise"] | None = None
    """Verdict on the whole model against the stage, corrected for the number of stages."""

    @property
    def significance(self) -> str:
        """The verdict in words; empty without one."""
        words = {"better": "significant", "worse": "significantly worse", "noise": "not significant"}
        return "" if self.verdict is None else words[self.verdict]


class Measurements(Frozen):
    """Results of `measure`."""

    split: str
    pointwise: dict[str, Estimates]
    """Pointwise metrics by system; the model is first everywhere."""
    ranking: dict[str, Estimates]
    """Ranking metrics by system; empty without a ranking, with the reason in `notes`."""
    beyond: dict[str, Estimates]
    """Beyond-accuracy metrics by system; metrics over all lists at once have no interval."""
    cohorts: tuple[Cohort, ...]
    """Cohorts without rows, or with all rows, are left out."""
    reliability: Curve
    """The model's mean label over mean prediction, by bins of equal mass; empty for non-probabilistic models and
    numeric labels."""
    label_mean: float | None = None
    """Mean of a numeric label in train; pointwise metrics are then errors in its unit. None for binary labels."""
    counts: Counts
    protocol: Protocol
    stages: tuple[StageFigures, ...] = ()
    """Generators, union of candidates and ranker of a model with stages."""
    verdict: tuple[str, ...] = ()
    """Paired tests of the model against the baselines, in sentences."""
    warning: str | None = None
    """Sentence on rankings significantly below popularity, with the remedy; shown where the model is used."""
    notes: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    """Systems that leave out items of the catalog, such as an EASE within its limits."""
    seconds: dict[str, float]
    """Duration of each part."""


class Evaluation(Tabular, Measurements):
    """The evaluation of one run."""

    key: str
    """Hash of the run and the config."""
    run: str
    model: str
    dataset: str
    """Name of the dataset or of its files."""
    selected: tuple[Selection, ...] = ()
    """Choices made on the evaluated rows, epoch or trial: the model's metrics are then optimistic."""
    ceiling: Ceiling | None = None
    """Best possible metric; None for real data."""
    device: str
    config: EvaluateConfig
    """The seed determines the sample and the resamples."""

    @property
    def systems(self) -> dict[str, Estimates]:
        """All metrics by system, the model first."""
        merged: dict[str, Estimates] = {}
        for part in (self.ranking, self.pointwise, self.beyond):
            for system, estimates in part.items():
                merged[system] = merged.get(system, {}) | estimates
        return ByName({system: ByName(estimates) for system, estimates in merged.items()})

    @property
    def metrics(self) -> Estimates:
        """The model's metrics, such as `ndcg@10` or `auc`."""
        return self.systems.get(MODEL, ByName())

    def _to_arrow(self) -> pa.Table:
        """Return all metrics as an Arrow table: system, metric, value, low and high."""
        rows = (
            (system, name, one.value, one.low, one.high)
            for system, metrics in self.systems.items()
            for name, one in metrics.items()
        )
        return rows_to_arrow(("system", "metric", "value", "low", "high"), rows)

    @classmethod
    def read(cls, path: Path) -> Evaluation:
        """Read an evaluation.json.

        Raises:
            MissingArtifactError: The file does not exist.
            DataError: The file is damaged, or of another version.
        """
        content = {name: value for name, value in read_evaluation(path).items() if name != "files"}
        try:
            return cls.model_validate(content)
        except ValueError as error:
            raise DataError(f"{path}: cannot read evaluation: {error}", hint="recsys evaluate --force") from error
