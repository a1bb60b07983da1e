"""The facts of the data report, and the findings: leaks and defects that make metrics wrong, and explanations of metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from recsys_cli.errors import DataError
from recsys_cli.features.schema import Task
from recsys_cli.features.split import SPLITS, TRAIN, splits
from recsys_cli.frozen import Frozen
from recsys_cli.page import is_date, moment, share

_TRAIN = SPLITS[TRAIN]
_MANY_COLD, _MANY_UNSEEN, _MANY_TARGETS, _MANY_LEFT_OUT, _MANY_DATES, _MANY_TIED = 0.5, 0.05, 0.5, 0.5, 0.5, 0.05
_FEW_USERS = 30


class OpRows(Frozen):
    """The numbers of rows before and after an op."""

    op: str
    columns: tuple[str, ...]
    rows_in: int
    rows_out: int


class Distinct(Frozen):
    """Users or items of a split."""

    distinct: int
    """Without null."""
    cold: int
    """Absent from the vocabulary of train."""


class LabelFacts(Frozen):
    """The label in a split; statistics are None if no row has a label."""

    mean: float | None
    """Mean; the share of ones for binary labels."""
    low: float | None
    high: float | None
    null: int
    """Rows without a label."""
    zeroed: int = 0
    """Rows without a label, written as 0 because an integer type has no null."""
    binary: bool


class SplitFacts(Frozen):
    """Statistics of a split; users or items are None if ops compute their column."""

    rows: int
    drawn: int
    """Sampled negatives among them; they count only for the label and for missing values."""
    dated: int = 0
    """Interactions with a time from 1973 to 2199, if times are dates."""
    far: int = 0
    """Interactions with a time before 1900 or after 2199, if times are dates."""
    users: Distinct | None
    items: Distinct | None
    label: LabelFacts
    first: int | float | None
    """First time, in seconds if the unit is known; None without times."""
    last: int | float | None

    @property
    def interactions(self) -> int:
        """Rows without sampled negatives."""
        return self.rows - self.drawn


class MissingValues(Frozen):
    """Missing values of a column in a split; rows of a dimension table count once per interaction."""

    null: int
    unseen: int = 0
    """Values without an id of their own; 0 for numeric columns."""
    values: int
    """All values (elements of a list column)."""
    infinite: int = 0
    """NaN counts as null."""


class Frequency(Frozen):
    """Distribution of the number of train rows per user or item."""

    distinct: int
    rows: int
    """Number of their rows (elements of a list column), without null and values without an id of their own."""
    least: int
    median: float
    most: int
    once: int
    head: dict[str, float]
    """Share of the rows of the most frequent 1 % and 10 %, by `0.01` and `0.1`."""


class RepeatedPairs(Frozen):
    """Repeated (user, item) pairs, or copies with the same time as well, of users and items with ids of their own."""

    share: float
    """Sampling rate of the values of `by`; 1 for all."""
    by: str
    """The sampled column; all rows of a sampled value are compared."""
    rows: dict[str, int]
    repeated: dict[str, int]
    """Rows with a pair of an earlier row, by split."""
    seen: dict[str, dict[str, int]]
    """Held-out rows with a pair of an earlier split, by both."""


class CommonTarget(Frozen):
    """The most frequent item of a held-out split."""

    item: str
    """Raw value of the item."""
    users: int
    """Users of the split with an id of their own."""
    with_item: int
    """Those with a row of the item."""


class SplitBoundary(Frozen):
    """Overlap in time of two splits."""

    earlier: str
    later: str
    first: int | float
    """Time of the first row of the later split, in seconds if the unit is known."""
    after: int
    """Rows of the earlier split after this time."""
    tied: int
    """Rows of the earlier split at exactly this time."""


class RankTest(Frozen):
    """Test whether an order of the items tells the target among the rows of one user at one time."""

    users: int
    mean: float
    """Mean share of the user's other rows of this time before the target in the order; 0.5 if ties are shuffled."""
    low: float
    """End of the interval by user, at 95 % for all tests of the report together (Bonferroni)."""
    high: float
    p: float
    """Probability of such a mean if ties are shuffled, by the variance of the ranks, times the number of tests."""


class Ties(Frozen):
    """Rows at the last time of each user in a held-out split, for users with an id of their own."""

    targets: int
    tied: int
    """Those with the time of the row before."""
    low: float
    """End of the 95 % interval of the share, by user."""
    high: float
    orders: dict[str, RankTest]
    """Tests of the raw values of the items (`value`), and of their mean positions in the file, by other rows (`position`)."""


class Timeline(Frozen):
    """Histogram of the rows over time."""

    edges: tuple[int | float, ...]
    """Bin edges, in seconds if the unit is known; half-open bins."""
    every: int
    """Sampling rate: one in `every` rows; 1 for all."""
    rows: dict[str, tuple[int, ...]]
    """Rows per bin, by split; extrapolated from a sample."""


class Finding(Frozen):
    """A conclusion from the facts."""

    level: Literal["note", "warning"]
    """`warning` for wrong or too optimistic metrics; `note` for an explanation of metrics."""
    text: str


class Facts(Frozen):
    """All facts about prepared data."""

    dataset: str
    method: str
    item: str | None = None
    """The item column."""
    time: str | None = None
    """The time column."""
    task: Task = "binary"
    rejected: int
    ops: tuple[OpRows, ...]
    splits: dict[str, SplitFacts]
    """By name, empty splits included."""
    missing: dict[str, dict[str, MissingValues]]
    """By column and split."""
    continuous: tuple[str, ...] = ()
    """Numeric inputs of models, without null and infinite values if valid."""
    items: Frequency | None
    """Popularity of items; None if train has no item with an id of its own."""
    users: Frequency | None
    """Activity of users; None if train has no user with an id of its own."""
    pairs: RepeatedPairs | None
    """Repeated pairs; None for lists of users or items."""
    copies: RepeatedPairs | None = None
    """Repeated (user, item, time) triples; None without times."""
    targets: dict[str, CommonTarget] = Field(default_factory=dict)
    """The most frequent item by held-out split; empty for lists of users or items."""
    timeline: Timeline | None
    borders: tuple[SplitBoundary, ...]
    ties: dict[str, Ties] = Field(default_factory=dict)
    """By held-out split; empty without times, and for lists of users or items."""
    tie_seed: int | None = None
    """Seed of the order of ties; None for that of the file."""
    future: dict[str, int] = Field(default_factory=dict)
    """Held-out rows with a later row of the same user in an earlier split, by split; empty without times."""
    train_only: dict[str, bool]
    """Whether the fitted counts of users, items and keys equal those of the prepared rows of train."""
    rows_first: tuple[str, ...]
    """Ops before the split, with access to later held-out rows."""
    findings: tuple[Finding, ...] = ()

    @property
    def has_dates(self) -> bool:
        """Whether most interactions have a date."""
        parts = self.splits.values()
        return sum(part.dated for part in parts) > _MANY_DATES * sum(part.interactions for part in parts)

    @classmethod
    def read(cls, path: Path) -> Facts:
        """Read a report.json.

        Raises:
            DataError: The file is not a report of this version.
        """
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path}: not a report of this version: {error}", hint="prepare the data again: `recsys etl --force`"
            ) from error


def conclude(facts: Facts) -> tuple[Finding, ...]:
    """Return the findings, warnings first."""
    checks = (
        _fitted, _repeated, _targets, _far_times, _times, _ties, _future, _labels, _not_finite, _cold, _not_compared,
    )  # fmt: skip
    findings = [finding for check in checks for finding in check(facts)]
    return tuple(sorted(findings, key=lambda finding: finding.level == "note"))


def _fitted(facts: Facts) -> Iterator[Finding]:
    for column, is_of_train in facts.train_only.items():
        if not is_of_train:
            text = f"the fitted counts of {column} differ from those of train: the fit used other rows"
            yield Finding(level="warning", text=text)


def _repeated(facts: Facts) -> Iterator[Finding]:
    """Yield findings about repeated pairs, and about copies: rows with user, item and time of another row."""
    train = facts.splits[_TRAIN]
    if any(one is not None and one.distinct == 1 for one in (train.users, train.items)):
        return  # a constant in the place of user or item
    if facts.pairs is not None:
        advice = "evaluate.repeats says whether rankings keep them"
        yield from _again(facts, facts.pairs, "repeat the (user, item) pair", advice, (_TRAIN,))
    if facts.copies is not None:
        advice = "copies tell the targets; {op: Deduplicate} of these columns in features.ops leaves them out"
        yield from _again(facts, facts.copies, "have user, item and time", advice, SPLITS)


def _again(facts: Facts, found: RepeatedPairs, what: str, advice: str, within: Sequence[str]) -> Iterator[Finding]:
    """Yield warnings about rows of earlier splits, and notes about those of the same split."""
    part = "" if found.share == 1 else f" (in a sample: {100 * found.share:.2g} % of the values of {found.by})"

    def text(rows: int, split: str, of: str) -> str:
        complete = found.share == 1 and found.rows[split] == facts.splits[split].interactions
        left_out = "" if complete else "; rows without ids of their own are not compared"
        return f"{_of(rows, found.rows[split])} rows of {split} {what} of {of}{left_out}{part}"

    for split, earlier in found.seen.items():
        for before, rows in earlier.items():
            if rows:
                yield Finding(level="warning", text=text(rows, split, f"a row of {before}: {advice}"))
    for split in within:
        if rows := found.repeated[split]:
            yield Finding(level="note", text=text(rows, split, f"another row of {split}"))


def _targets(facts: Facts) -> Iterator[Finding]:
    for split, target in facts.targets.items():
        if target.users > 1 and target.with_item > _MANY_TARGETS * target.users:
            text = f"{_of(target.with_item, target.users)} users of {split} have a row of the item {target.item}: a "
            yield Finding(level="warning", text=f"{text}ranking equal for all users finds it")


def _far_times(facts: Facts) -> Iterator[Finding]:
    """Yield warnings about times far from all others: errors of the data, which a split by time moves to its ends."""
    parts = facts.splits.values()
    if not facts.has_dates:
        ends = [end for part in parts for end in (part.first, part.last) if end is not None]
        if any(end % 1 for end in ends):  # other numbers than dates, and no positions either
            text = f"features.timestamp: {facts.time} has numbers from {min(ends):g} to {max(ends):g}, and times are dates or whole"
            yield Finding(
                level="warning", text=f"{text} numbers in order: name the column of the time, or none and another split"
            )
        return
    for name, split in facts.splits.items():
        if split.far and split.first is not None and split.last is not None:
            example = max(split.first, split.last, key=abs)
            text = (
                f"{_of(split.far, split.interactions)} rows of {name} have a time before 1900 or after 2199, such as "
            )
            text += f"{example:,.0f} seconds since 1970: "
            text += "a split by time moves them to its ends; " if splits()[facts.method].in_order else ""
            yield Finding(level="warning", text=f"{text}correct them, or drop them with Filter first in features.ops")


def _times(facts: Facts) -> Iterator[Finding]:
    in_order = splits()[facts.method].in_order
    if in_order is False:
        yield from _known_to_overlap(facts)
        return
    for border in facts.borders:
        if border.after:
            yield Finding(level="warning", text=_after(facts, border))
        if in_order and border.tied:
            yield Finding(level="note", text=_tied(border))


def _known_to_overlap(facts: Facts) -> Iterator[Finding]:
    """Yield the largest overlap in time of a split by another method, expected there."""
    borders = [
        border
        for border in facts.borders
        if border.earlier == _TRAIN and border.after and is_date(border.first, border.first)
    ]
    if borders:
        yield Finding(level="note", text=_after(facts, max(borders, key=lambda border: border.after)))


def _ties(facts: Facts) -> Iterator[Finding]:
    """Yield warnings about held-out rows that an order of the items tells among rows of one time."""
    if facts.pairs is not None and not facts.has_dates and not any(ties.tied for ties in facts.ties.values()):
        why = f"{facts.time} has neither dates nor ties, so it is a position" if facts.time else "the data has no times"
        yield Finding(level="note", text=f"{why}: the order of the file is taken as given and cannot be checked")
    for split, ties in facts.ties.items():
        text = f"{_of(ties.tied, ties.targets)} last rows of users in {split} have the time of the row before"
        is_shuffled = facts.tie_seed is not None
        shuffle = (
            "split.tie_seed=1 shuffles ties" if not is_shuffled else f"split.tie_seed={facts.tie_seed} shuffles them"
        )
        found = [
            f"the {'item id' if name == 'value' else 'position in the file'} is above that of {100 * test.mean:.1f} % of "
            f"the user's other rows of this time [{100 * test.low:.1f}, {100 * test.high:.1f}], in shuffled order 50 %"
            for name, test in ties.orders.items()
            if test.p < 0.05
        ]
        if found:
            learns = f"a model may learn the order of the file instead of taste; {shuffle}: compare"
            yield Finding(level="warning", text=f"{text}; {'; '.join(found)}: {learns}")
        elif ties.tied > _MANY_TIED * ties.targets and splits()[facts.method].holdout == "last":
            yield Finding(
                level="note", text=f"{text}: {'' if is_shuffled else 'the order of the file decides; '}{shuffle}"
            )


def _future(facts: Facts) -> Iterator[Finding]:
    """Yield warnings about targets whose future is in an earlier split; of splits without times that is a known property."""
    kind = splits()[facts.method]
    for split, rows in facts.future.items():
        if rows and (kind.in_order is None or "timestamp" in kind.reads):
            text = f"{_of(rows, facts.splits[split].interactions)} rows of {split} have a later row of the same user in an "
            text += "earlier split: models see the future of these targets; split.method=temporal or leave-last-out avoids it"
            yield Finding(level="warning", text=text)


def _after(facts: Facts, border: SplitBoundary) -> str:
    rows = _of(border.after, facts.splits[border.earlier].interactions)
    text = f"{rows} rows of {border.earlier} are later than the first row of {border.later}"
    return f"{text} ({moment(border.first)})"


def _tied(border: SplitBoundary) -> str:
    rows = f"1 row of {border.earlier} has" if border.tied == 1 else f"{border.tied:,} rows of {border.earlier} have"
    time = f"the same time as the first row of {border.later} ({moment(border.first)})"
    return f"{rows} {time}: the order of the input breaks ties"


def _labels(facts: Facts) -> Iterator[Finding]:
    for name, split in facts.splits.items():
        label = split.label
        if label.null:
            yield Finding(level="warning", text=f"{_of(label.null, split.rows)} rows of {name} have no label")
        if label.zeroed:
            text = (
                f"{_of(label.zeroed, split.rows)} rows of {name} have no label, and count as 0: drop them with Dropna"
            )
            yield Finding(level="warning", text=text)
    yield from _constant(facts)
    yield from _not_binary(facts)


def _constant(facts: Facts) -> Iterator[Finding]:
    """Yield findings about constant labels: implicit feedback if all are 1, else no signal."""
    same = {
        name: split.label.low
        for name, split in facts.splits.items()
        if split.label.mean is not None and split.label.low is not None and split.label.low == split.label.high
    }
    if same.get(_TRAIN) == 1 and set(same.values()) == {1} and facts.task == "binary":
        text = (
            "every label is 1 (implicit feedback): retrieval and sequence models learn from it (ease, ials, sasrec); ranking "
            "models also need rows with label 0, for example from NegativeSampling in features.ops"
        )
        yield Finding(level="note", text=text)
        return
    for name, value in same.items():
        text = f"every label of {name} is {value:g}: AUC is undefined, and a model cannot learn labels from this split"
        yield Finding(level="warning", text=text)


def _not_binary(facts: Facts) -> Iterator[Finding]:
    """Yield a warning about labels outside [0, 1], refused by training."""
    outside = [
        (name, low, high)
        for name, split in facts.splits.items()
        if (low := split.label.low) is not None and (high := split.label.high) is not None and (low < 0 or high > 1)
    ]
    if outside and facts.task == "binary":
        names, lows, highs = zip(*outside, strict=True)
        text = (
            f"labels of {' and '.join(names)} go from {min(lows):g} to {max(highs):g}, but train and evaluate expect 0 and 1: "
            "convert them in features.ops, or set task: regression for the label"
        )
        yield Finding(level="warning", text=text)


def _not_finite(facts: Facts) -> Iterator[Finding]:
    """Yield warnings about null and infinite numeric inputs, each with the op to add."""
    for column in facts.continuous:
        first = next((rows.op for rows in facts.ops if column in rows.columns), None)
        before = f" before {first}" if first else " in features.ops"
        for split, missing in facts.missing.get(column, {}).items():
            for count, kind, op in ((missing.null, "null", "FillMissing"), (missing.infinite, "infinite", "Clip")):
                if count:
                    text = f"{column}: {_of(count, missing.values)} values of {split} are {kind}; add {op}{before}"
                    yield Finding(level="warning", text=text)


def _cold(facts: Facts) -> Iterator[Finding]:
    for role in ("users", "items"):
        found = {name: values for name, split in facts.splits.items() if (values := getattr(split, role)) is not None}
        cold = {name: (one.cold, one.distinct) for name, one in found.items() if one.cold > _MANY_COLD * one.distinct}
        if cold:
            yield Finding(level="note", text=f"{_of_splits(cold, role)} are cold-start: absent from train")
    valid = facts.splits.get("valid")
    if valid is not None and valid.users is not None:
        known = valid.users.distinct - valid.users.cold
        if 0 < known < _FEW_USERS and valid.users.cold > _MANY_COLD * valid.users.distinct:
            text = f"valid has only {known} of its users in train, and its metrics tell little: "
            yield Finding(
                level="warning", text=f"{text}set split.method to leave-last-out, random, or user for new users"
            )
    unseen = {
        name: (missing.unseen + missing.null, missing.values)
        for name, missing in facts.missing.get(facts.item or "", {}).items()
        if name != _TRAIN and missing.unseen + missing.null > _MANY_UNSEEN * missing.values
    }
    if unseen:
        text = f"{_of_splits(unseen, 'rows')} have an item without an id, which most models cannot rank"
        yield Finding(level="note", text=text)


def _not_compared(facts: Facts) -> Iterator[Finding]:
    """Yield a note about held-out splits with mostly cold users or items: no finding there does not mean no fault."""
    if facts.pairs is None or facts.pairs.share < 1:
        return
    held_out = {name: split.interactions for name, split in facts.splits.items() if name != _TRAIN}
    left_out = {name: (rows - facts.pairs.rows[name], rows) for name, rows in held_out.items()}
    if many := {name: counts for name, counts in left_out.items() if counts[0] > _MANY_LEFT_OUT * counts[1]}:
        text = f"{_of_splits(many, 'rows')} have a user or an item without an id: copies, repeated pairs and "
        yield Finding(level="note", text=f"{text}common targets of these rows are not compared")


def _of_splits(counts: Mapping[str, tuple[int, int]], unit: str) -> str:
    """Return counts by split, such as `2 of 3 (66.7 %) rows of valid and 1 of 4 (25.0 %) of test`."""
    units = [f" {unit}", *[""] * (len(counts) - 1)]
    return " and ".join(f"{_of(*of)}{what} of {name}" for (name, of), what in zip(counts.items(), units, strict=True))


def _of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({share(part, whole)})"
