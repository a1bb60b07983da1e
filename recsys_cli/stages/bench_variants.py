"""The models of a published evaluation with ties shuffled and by global time, where its data has times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recsys_cli.config import RunConfig
from recsys_cli.errors import RecsysError
from recsys_cli.etl.report import Facts
from recsys_cli.evaluation.compare.leaderboard import Leaderboard, Variant
from recsys_cli.features.split import TemporalSplit

_NO_TIMES = "the data has no times: its order is taken as given, with neither ties shuffled nor a split by time"
_NO_TIES = "ties not shuffled: no held-out row has the time of the same user's row before"
_FIXED = "not by time: the split or the candidates are given"
_TEXTS = {
    "ties": "ties: shuffled with seed {}, independently by user, so the intervals include it; {:,} users",
    "time": "time: the last tenth of all rows is test, the tenth before valid; the last item of each test user is ranked after "
    "all earlier ones; ties shuffled with seed {}; {:,} users",
}


def run_variants(
    config: RunConfig, facts: Facts, run: Callable[[RunConfig], Leaderboard]
) -> tuple[tuple[Variant, ...], tuple[str, ...]]:
    """Run a bench on the variants of its data by `run`; return them, and why others are left out."""
    assert config.protocol is not None
    assert config.bench is not None
    seed, is_tied = config.bench.seeds[0], any(ties.tied for ties in facts.ties.values())
    is_fixed = config.split.method in {"files", "temporal"} or config.evaluate.candidates == "given"
    reasons = {"ties": None if is_tied or not facts.ties else _NO_TIES, "time": _FIXED if is_fixed else None}
    if not (is_tied or facts.has_dates):
        reasons = dict.fromkeys(reasons, _NO_TIMES)
    ties: dict[str, Any] = {"split": config.split.model_copy(update={"tie_seed": seed})}
    last = config.evaluate.model_copy(update={"targets": "last"})
    time = {"split": TemporalSplit(valid=0.1, test=0.1, tie_seed=seed), "evaluate": last}
    found = []
    for name in config.protocol.variants:
        if reasons[name] is None:
            changes = {"protocol": None, **(ties if name == "ties" else time)}
            try:
                board = run(config.model_copy(update=changes))
            except RecsysError as error:  # the published evaluation is shown all the same
                reasons[name] = f"{name}: {error.message}"
                continue
            text, scores = _TEXTS[name].format(seed, board.users), {row.label: row.scores for row in board.standings}
            found.append(Variant(name=name, text=text, users=board.users, scores=scores))
    return tuple(found), tuple(dict.fromkeys(why for name in config.protocol.variants if (why := reasons[name])))
