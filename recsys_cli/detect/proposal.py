"""The config for a task: dataset, split, ops, model and training, as values with comments and as YAML."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from recsys_cli.config.starting import positive
from recsys_cli.config.yaml12 import quoted
from recsys_cli.detect.features import FeatureColumns, number_ops, separating, strong_columns, treatments
from recsys_cli.detect.names import ALIASES, EVENT_WEIGHTS, NEGATIVE_EVENTS, simplified
from recsys_cli.detect.profiles import Profile, mean
from recsys_cli.detect.roles import ENOUGH, positive_text
from recsys_cli.detect.tables import Dimension, Table
from recsys_cli.detect.task import NEW_ORDER, Task, model_of, split_of, time_of
from recsys_cli.errors import listed
from recsys_cli.ops.expression import Binary, Call, LiteralValue, Name, columns, parse, shown

MANY_REPEATED = 0.25
"""Share of repeated rows from which on rankings keep them: own items first has .235 on check-ins of 26 %, where EASE has .160."""
_RARE, _FREQUENT = 5, 0.5
_NOT_RATED, _FEW_RATINGS = -1, 3
_FEW_POSITIVE = 0.05
"""Share of positive rows below which the threshold of a rating falls."""
_PAIRS = frozenset({"implicit", "counts", "events", "sessions"})
"""Tasks in which each row is positive, and repeated rows of a pair say the same."""
Ops = list[tuple[dict[str, Any], str]]


@dataclass(frozen=True)
class Proposal:
    """A config as values, with comments by key, such as `split.method`; ops have their own."""

    sections: dict[str, dict[str, Any]]
    ops: Ops
    comments: dict[str, str]
    unused: tuple[str, ...] = ()
    strong: dict[str, float] = field(default_factory=dict)
    """AUC of the columns that alone predict the label."""
    of_rows: tuple[str, ...] = ()
    """Features of the interaction; a model with them ranks no catalog."""
    repeated: float = 0.0
    """Share of the rows of a ranking that repeat an earlier pair of user and item."""

    @property
    def repeats(self) -> bool:
        """Whether the rankings keep seen items."""
        return bool(self.sections["evaluate"].get("repeats"))

    @property
    def left_out(self) -> dict[str, float]:
        """AUC of the columns left out because they separate the label."""
        return separating(self.strong)


def propose(task: Task, table: Table, joined: Sequence[Dimension]) -> Proposal:
    """Return the config of a task."""
    own, strong = _features(task, table)
    split, why_split = split_of(task, table)
    if table.sample.splits:
        split, why_split = {"method": "files", **table.sample.splits}, "the files of the splits as given"
    is_click = task.kind == "clicks"
    user, item = _stand_ins(table, own) if is_click else (str(task.user), table.roles["item"].column)
    repeated = _repeated(table, user, item) if task.ranks and task.kind != "histories" else 0.0
    repeats = _repeats(task, table, user, item) and split["method"] != "files"
    ops = _row_ops(
        task, table, user, item, is_given=split["method"] == "files", is_temporal=split["method"] == "temporal",
        repeats=repeats,
    )  # fmt: skip
    categories = list(dict.fromkeys((user, item, *own.categories)))
    taken = [role.column for role in table.roles.values()] if task.ranks else list(table.columns)  # by the plan
    of_tables = {one.table.sample.name: _joined_columns(one, taken=taken) for one in joined}
    for one in joined:
        if used := of_tables[one.table.sample.name].used:
            ops.append(
                ({"op": "JoinExternal", "table": one.table.sample.name, "on": one.key, "columns": list(used)}, "")
            )
            categories += of_tables[one.table.sample.name].categories
    for found in (own, *of_tables.values()):
        ops += number_ops(found)
    absent = [name for name in (user, item) if name not in table.columns]
    ops += [({"op": "LambdaOp", "expression": "0", "output": name, "dtype": "int8"}, "constant") for name in absent]
    rare = {"freq_threshold": 5 if table.sample.total < 1_000_000 else 15} if is_click else {}
    ops.append((
        {"op": "Categorify", "columns": categories, **rare},
        "values to ids, fitted on the train split only" + ("; rare values share one" if rare else ""),
    ))  # fmt: skip
    label_ops, features = _target(task, table)
    model, why_model, train = model_of(task, table, categories=len(categories))
    named = (one.table.roles["title"].column for one in joined if one.side == "item" and "title" in one.table.roles)
    title = next(filter(None, (_title(table, item), *named)), "")
    time = time_of(task, table)
    shown = {"impression": table.roles["impression"].column} if task.kind == "impressions" else {}
    fold_in = {"fold_in_targets": 1} if split["method"] == "session" else {}
    sections = {
        "dataset": _dataset(task, table, joined, {**of_tables, "": own}),
        "split": split,
        "features": {"user": user, "item": item, **features, **shown, **({"timestamp": time} if time else {})},
        "model": model,
        "train": train,
        "evaluate": {**fold_in, **({"repeats": True} if repeats else {}), **({"title": title} if title else {})},
    }
    comments = {
        "split.method": why_split, "model.name": why_model, "evaluate.title": "item titles in the report",
        "train.monitor": "the best epoch has the best order; log_loss, the default, for accurate probabilities",
        "train.early_stopping": f"stop after {train.get('early_stopping')} epochs without improvement; the best epoch is kept",
        "features.impression": "candidates of one id are ranked against each other: AUC, MRR, NDCG of impressions",
        "evaluate.fold_in_targets": "fold-in: the last item of a session is the ground truth, the earlier ones its history",
        "evaluate.repeats": "rankings keep seen items: many rows repeat an earlier pair of user and item",
        "features.user": "a stand-in: the rows have no user, so rankings by user mean nothing" if is_click else "",
        "features.item": "a stand-in as well" if is_click else "",
    }  # fmt: skip
    unused = _unused(table, own, (user, item, time, *separating(strong)))
    of_rows = () if is_click else own.used
    return Proposal(sections, [*ops, *label_ops], comments, unused, strong, of_rows, repeated)


def _unused(table: Table, own: FeatureColumns, named: Sequence[str | None]) -> tuple[str, ...]:
    roles = {role.column for role in table.roles.values()}
    return tuple(name for name in table.columns if name not in {*roles, *own.used, *named})


def _features(task: Task, table: Table) -> tuple[FeatureColumns, dict[str, float]]:
    """Return the columns of the interactions known before the outcome, and the AUC of those that alone predict the label."""
    if task.ranks or task.kind == "ratings" or table.sample.total < ENOUGH:
        return FeatureColumns(), {}
    roles = {role.column for name, role in table.roles.items() if name in {"label", "timestamp", "title"}}
    roles |= set() if task.kind == "clicks" else {role.column for role in table.roles.values()}
    outcomes = {name for role in ("rating", "event", "label") for name in ALIASES[role]}
    free = [one for name, one in table.columns.items() if name not in roles and simplified(name) not in outcomes]
    ids = {role.column for role in table.roles.values()}
    used = [table.columns[name] for name in treatments(free).used if name not in ids]
    strong = strong_columns(table.sample.rows, table.columns[table.roles["label"].column], used)
    return treatments(one for one in free if one.name not in separating(strong)), strong


def _joined_columns(one: Dimension, *, taken: Sequence[str]) -> FeatureColumns:
    title = one.table.roles.get("title")
    skipped = {one.key, *taken, *((title.column,) if title else ())}
    return treatments(column for name, column in one.table.columns.items() if name not in skipped)


def _title(table: Table, item: str) -> str:
    """Return the column with the titles of the items; empty if a title does not follow from the item, as of reviews."""
    title = table.roles.get("title")
    if title is None or item not in table.columns:
        return ""
    rows = table.sample.rows.select([item, title.column])
    pairs = rows.group_by([item, title.column]).aggregate([]).num_rows
    return title.column if pairs <= 1.1 * table.columns[item].unique else ""


def _stand_ins(table: Table, own: FeatureColumns) -> tuple[str, str]:
    plain = [name for name in own.categories if not table.columns[name].is_list]
    named = [table.roles[role].column for role in ("user", "item") if role in table.roles]
    ranked = sorted(plain, key=lambda name: -table.columns[name].unique)
    first, second, *_ = [*dict.fromkeys((*named, *ranked)), None, None]
    return first or "no_user", second or "no_item"


def _row_ops(
    task: Task, table: Table, user: str, item: str, *, is_given: bool, is_temporal: bool, repeats: bool
) -> Ops:
    """Return the filters of rows: nulls, negative events and duplicates."""
    ops: Ops = []
    needed = [table.columns[name] for name in (user, item) if name in table.columns and task.kind != "clicks"]
    needed += [one for one in (table.of("timestamp"), table.of("rating")) if one is not None]
    if nulls := [one.name for one in needed if one.nulls]:
        ops.append(({"op": "Dropna", "columns": nulls}, "rows without these values"))
    rating = table.of("rating")
    if rating is not None and is_not_rated(rating):
        expression = shown(Binary("!=", Name(rating.name), LiteralValue(_NOT_RATED)))
        ops.append(({"op": "Filter", "expression": expression}, "-1 stands for no rating"))
    ops += _no_purchases(table) if task.ranks else []
    if task.kind == "labels" and task.ranks and table.columns[table.roles["label"].column].unique > 1:
        ops.append(({"op": "Filter", "expression": _is_positive(table)}, "the other rows are no sign of interest"))
    event = table.of("event")
    if task.kind == "events" and event is not None:
        bad = [value for value in event.values if simplified(value) in NEGATIVE_EVENTS]
        for value in bad:
            expression = shown(Binary("!=", Name(event.name), LiteralValue(value)))
            ops.append(({"op": "Filter", "expression": expression}, "no sign of interest"))
    if is_given:
        return ops
    if not is_temporal:
        ops += _deduplicated(task, table, user, item, repeats=repeats)
    if task.is_session and task.ranks and task.kind != "histories" and table.sample.total >= ENOUGH:
        core = {user: 2, **({item: _RARE} if _share_of_frequent(table, item) > _FREQUENT else {})}
        why = "a session of one item has no history; rare items have too few neighbors"
        ops.append(({"op": "KCore", "columns": core}, why))
    return ops


def _deduplicated(task: Task, table: Table, user: str, item: str, *, repeats: bool) -> Ops:
    """Return the op for pairs of several rows.

    A temporal split needs none: a model sums the rows of a pair in train, and held-out rows of pairs in train are no ground truth.
    """
    if task.kind not in _PAIRS or not _repeated(table, user, item):
        return []
    pair, time = [user, item], time_of(task, table)
    why = "a held-out pair is new, and the first row of a pair gives its weight"
    if task.is_session:
        why = "a ranking never repeats an item of the history"
    if repeats:
        pair, why = [*pair, str(time)], "the same row twice is no repeat"
    return [({"op": "Deduplicate", "columns": pair, "keep": "first", **({"order_by": [time]} if time else {})}, why)]


def _no_purchases(table: Table) -> Ops:
    """Return the filters of returns and of cancelled invoices."""
    returns = "negative counts are returns; the purchases before them stay positive"
    cancelled = "invoices with a C before the number are cancelled"
    found = [(Binary(">", Name(name), LiteralValue(0)), returns) for name in _with_returns(table)]
    found += [(Binary("<", Name(name), LiteralValue("C")), cancelled) for name in _with_cancellations(table)]
    return [({"op": "Filter", "expression": shown(expression)}, why) for expression, why in found]


def _with_returns(table: Table) -> list[str]:
    """Return the columns of counts with negative ones, in the role of the count or without a role."""
    others = {one.column for role, one in table.roles.items() if role != "count"}
    counts = [
        one for one in table.columns.values() if one.name not in others and simplified(one.name) in ALIASES["count"]
    ]
    return [one.name for one in counts if one.is_whole and (one.low or 0) < 0 < (one.high or 0)]


def _with_cancellations(table: Table) -> list[str]:
    """Return the columns of invoice numbers, some of them after the C of a cancelled invoice."""
    names = [one.name for one in table.columns.values() if one.kind == "text" and "invoice" in one.name.lower()]
    texts = {name: pl.Series(pl.from_arrow(table.sample.rows.column(name))).drop_nulls() for name in names}
    cancelled = {name: mean(values.str.contains(r"^C\d+$")) for name, values in texts.items()}
    return [name for name, values in texts.items() if 0 < cancelled[name] < mean(values.str.contains(r"^C?\d+$")) == 1]


def _share_of_frequent(table: Table, item: str) -> float:
    """Return the share of the rows with items of at least `_RARE` rows."""
    counts = table.sample.rows.group_by(item).aggregate([([], "count_all")]).column("count_all").to_numpy()
    return float(counts[counts >= _RARE].sum() / max(1, counts.sum()))


def _repeated(table: Table, user: str, item: str) -> float:
    """Return the share of the sampled rows with user and item that repeat a pair of both."""
    if table.columns[item].is_list:
        return 0.0
    rows = table.sample.rows.select([user, item]).drop_null()
    return 1 - rows.group_by([user, item]).aggregate([]).num_rows / max(1, rows.num_rows)


def _repeats(task: Task, table: Table, user: str, item: str) -> bool:
    """Return whether many rows are repeats at another time, such as second purchases, and not second kinds of events."""
    time = time_of(task, table)
    if time is None or task.is_session or not task.ranks or task.kind not in {"implicit", "counts"}:
        return False
    moments = table.sample.rows.select([user, item, time]).drop_null().group_by([user, item, time]).aggregate([])
    pairs = moments.group_by([user, item]).aggregate([]).num_rows
    return 1 - pairs / max(1, moments.num_rows) >= MANY_REPEATED


def _target(task: Task, table: Table) -> tuple[Ops, dict[str, Any]]:
    """Return the ops of label and weight, and their roles."""
    if task.kind in {"labels", "clicks", "impressions"}:
        label = table.columns[table.roles["label"].column]
        if positive_text(label) is None:
            return [], {"label": label.name}
        name = next(name for name in ("label", "is_positive") if name not in table.columns)
        return [
            ({"op": "LambdaOp", "expression": _is_positive(table), "output": name, "dtype": "int8"}, "positive rows")
        ], {"label": name}
    if task.kind == "ratings":
        rating = table.of("rating")
        assert rating is not None
        expression = positive(rating.name, _threshold(_ratings(rating, table)))
        op = {"op": "LambdaOp", "expression": expression, "output": "label", "dtype": "int8"}
        return [(op, "positive interactions")], {"label": "label"}
    ops: Ops = [({"op": "LambdaOp", "expression": "1", "output": "label", "dtype": "int8"}, "each row is positive")]
    weight = _weight(task, table)
    if weight is None:
        return ops, {"label": "label"}
    op = {"op": "LambdaOp", "expression": weight, "output": "row_weight", "dtype": "float32"}
    return [*ops, (op, "used by models trained in steps, such as mf, two-tower, sasrec")], {
        "label": "label",
        "weight": "row_weight",
    }


def _is_positive(table: Table) -> str:
    """Return the expression of a positive row of a label."""
    label = table.columns[table.roles["label"].column]
    return shown(Binary("==", Name(label.name), LiteralValue(positive_text(label) or 1)))


def _weight(task: Task, table: Table) -> str | None:
    if task.kind == "counts" and (count := table.of("count")) is not None:
        return shown(Call("log", (Binary("+", Name(count.name), LiteralValue(1)),)))
    event = table.of("event")
    if task.kind != "events" or event is None:
        return None
    expression: Any = LiteralValue(1)
    for value in event.values:
        if (weight := EVENT_WEIGHTS.get(simplified(value), 1)) > 1:
            condition = Binary("==", Name(event.name), LiteralValue(value))
            expression = Call("if", (condition, LiteralValue(weight), expression))
    return shown(expression)


def _ratings(rating: Profile, table: Table) -> pl.Series:
    """Return the ratings without nulls and without `_NOT_RATED`."""
    values = pl.Series(pl.from_arrow(table.sample.rows.column(rating.name))).cast(pl.Float64).drop_nulls()
    return values.filter(values != _NOT_RATED) if is_not_rated(rating) else values


def is_not_rated(rating: Profile) -> bool:
    """Whether -1 stands for "not rated": the only negative value, below a scale of more than -1 and 1."""
    return (
        rating.low == _NOT_RATED
        and rating.unique > _FEW_RATINGS
        and "-1" in {text.removesuffix(".0") for text in rating.values}
    )


def _threshold(values: pl.Series) -> float:
    """Return the rating above which a row is positive: 3 of 5 stars, three fifths of another scale, or less if few reach it."""
    numbers = values.to_numpy()
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 0.0)
    above = 3.0 if 3 < high <= 5 and low >= 0 else low + 0.6 * (high - low) if low >= 0 else 0.0
    if mean(values > above) < _FEW_POSITIVE:
        distinct = values.unique().sort(descending=True).to_list()
        above = next((value for value in distinct[1:] if mean(values > value) >= _FEW_POSITIVE), above)
    return int(above) if above == int(above) or high > 5 else round(above, 3)


def _dataset(task: Task, table: Table, joined: Sequence[Dimension], found: dict[str, FeatureColumns]) -> dict[str, Any]:
    options = dict(table.sample.options)
    item = table.of("item")
    lists = dict(found[""].lists)
    if item is not None and item.is_list and "explode" not in options:
        lists |= {item.name: item.separator} if item.separator else {}
        options |= {"explode": item.name, **({"order": NEW_ORDER[0]} if task.kind == "histories" else {})}
    elif task.kind != "histories" and (time := time_of(task, table)) is not None and time not in table.columns:
        options |= {"order": time}
    tables = {
        one.table.sample.name: _short({**one.table.sample.options, **_lists(found[one.table.sample.name].lists)})
        for one in joined
    }
    return {
        "name": "files",
        "interactions": _short({**options, **_lists({**options.get("lists", {}), **lists})}),
        **({"tables": tables} if tables else {}),
    }


def _lists(lists: dict[str, str]) -> dict[str, Any]:
    return {"lists": lists} if lists else {}


def _short(options: dict[str, Any]) -> Any:
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    return plain["files"] if set(plain) == {"files"} else plain


_BLOCK = frozenset({"interactions", "tables"})


def config_text(proposal: Proposal, task: Task, *, source: str, path: str) -> str:
    """Return the text of the config; `source` names the table, `path` the file to write."""
    lines = [
        f"# A recommender from {source}, written by recsys init. Edit it, then run all stages:",
        "#",
        f"#   recsys run {shlex.quote(path)}",
        "#",
        "# or each stage: recsys etl, recsys train, recsys evaluate.",
        f"# Task: {task.words}.",
    ]
    for name, section in proposal.sections.items():
        if section:
            lines += ["", f"{name}:", *_section(name, section, proposal)]
            lines += _ops(proposal, task) if name == "features" else []
    return "\n".join(lines) + "\n"


def _section(name: str, section: dict[str, Any], proposal: Proposal) -> list[str]:
    lines = []
    for key, value in section.items():
        comment = proposal.comments.get(f"{name}.{key}", "")
        if key == "interactions" and not isinstance(value, dict):
            comment = "a path or a list of paths, relative to the working directory"
        if key in _BLOCK and isinstance(value, dict):
            lines += [f"  {key}:", *(f"    {quoted(inner)}: {_flow(one)}" for inner, one in value.items())]
        else:
            lines.append(f"  {key}: {quoted(value)}" + (f"  # {comment}" if comment else ""))
    return lines


def _ops(proposal: Proposal, task: Task) -> list[str]:
    lines = ["  ops:"]
    for op, comment in proposal.ops:
        lines.append(f"    - {_flow(op)}" + (f"  # {comment}" if comment else ""))
        if op["op"] == "Categorify" and proposal.unused:
            names = listed(proposal.unused, shown=quoted)
            lines.append(f"    # Unused columns: {names}. Add categorical ones to the list above.")
        if op["op"] == "Categorify" and proposal.left_out:
            names = ", ".join(f"{quoted(name)} (AUC {auc:.2f})" for name, auc in proposal.left_out.items())
            lines.append(
                f"    # Left out: {names}. Each alone predicts the label: probably known only after the outcome."
            )
        if not task.ranks and op.get("output") == "label" and ">" in op["expression"]:
            rating = next(iter(_names(op["expression"])))
            number = _flow({"name": rating, "task": "regression"})
            lines.append(
                f"    # To predict {quoted(rating)} itself, set the label to {number} and remove the line above."
            )
    return lines


def _flow(value: Any) -> str:
    """Return a value on one line, with the keys of a mapping in their order."""
    if not isinstance(value, dict):
        return quoted(value)
    return "{" + ", ".join(f"{quoted(key)}: {_flow(one)}" for key, one in value.items()) + "}"


def _names(expression: str) -> list[str]:
    return sorted(columns(parse(expression)))
