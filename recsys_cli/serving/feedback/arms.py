"""Arms of traffic shares: the bundle of each user, and the hits of the users of each arm."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recsys_cli.errors import ConfigError, MissingArtifactError
from recsys_cli.evaluation.sequential import LEVEL, Hits, ratio_of_hits
from recsys_cli.serving.feedback.log import current_files, replay
from recsys_cli.serving.feedback.state import FeedbackState


def name_of(user: object, shares: Mapping[str, float], *, salted: bool = True) -> str:
    """Return the bundle of a user's share: the same for any order of the shares.

    The names are the salt, so that a test with new names divides users anew. Logs without arms are of servers without it.
    """
    ordered = sorted(shares.items())
    point = share_point(user, "".join(f"{name}\0" for name, _ in ordered) if salted else "")
    for name, share in ordered:
        point -= share
        if point < 0:
            return name
    return ordered[-1][0]


def share_point(user: object, salt: str = "") -> float:
    """Return a number from 0 to 1, stable by user id as text."""
    digest = hashlib.blake2b(f"{salt}{user}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


@dataclass(frozen=True)
class Arm:
    """One arm, against the reference.

    Attributes:
        name: Name of its bundle.
        share: Its share of the users; of changed ones the harmonic mean over its hits.
        users: Users with feedback.
        users_with_hits: Users with positive feedback.
        hits: Positive feedback.
        at_full_traffic: Estimated hits with all users in this arm.
        ratio: Hits per assigned user, as a multiple of those of the reference; None with too few users.
        low, high: Its 95 % interval, valid at any look.
        verdict: better or worse; None for no verdict yet.
    """

    name: str
    share: float
    users: int
    users_with_hits: int
    hits: int
    at_full_traffic: float
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str | None


@dataclass(frozen=True)
class Arms:
    """Arms of a feedback log; `against` is the name of the reference, the first arm.

    Attributes:
        assigned: Events without an arm in the log, assigned by the given shares.
        left_out: Events without an arm, or of a time with one bundle for all users.
        damaged: Damaged lines.
    """

    against: str
    arms: tuple[Arm, ...]
    assigned: int
    left_out: int
    damaged: int


def arms_of(
    folder: Path, shares: Mapping[str, float], *, against: str | None = None, positive_above: float | None = None
) -> Arms:
    """Return the arms of a feedback log.

    Args:
        folder: The feedback folder.
        shares: Shares for events that have no arm in the log; none leaves these events out.
        against: The reference; the arm with the largest share by default.
        positive_above: Hits are likes, and labels above it; None for 0.

    Raises:
        MissingArtifactError: The folder has no feedback.
        ConfigError: There is one arm, or no arm of the name.
        DataError: All lines of a file are damaged.
    """
    state, assigned, left_out = FeedbackState(), 0, 0
    damaged = sum(replay(path, state)[1] for path in current_files(folder))
    known = {name: share for name, share in shares.items() if share}
    weights: dict[str, dict[str, list[float]]] = {name: {} for name in known}
    for event in (one for one in state.live() if one.kind == "put"):
        name, share = event.arm, event.share
        if name is None and shares:
            name, assigned = name_of(event.user, shares, salted=False), assigned + 1
            share = shares[name]
        if name is None or share is None or share >= 1:
            left_out += 1
            continue
        known[name] = share
        own = weights.setdefault(name, {}).setdefault(str(event.user), [])
        own += [1 / share] * (event.label is None or event.label > (positive_above or 0))
    if not any(weights.values()) and not left_out:
        raise MissingArtifactError(f"{folder} has no feedback", hint="name the folder of recsys serve --feedback")
    if len(weights) < 2:
        problem = f"{folder} has {'the arm ' + next(iter(weights)) if weights else 'no arms'}; two are needed"
        raise ConfigError(problem, hint="give the shares of feedback without an arm: main=0.9 test=0.1")
    hits = {name: _summed(own, known[name]) for name, own in weights.items()}
    first = against or max(sorted(hits), key=lambda name: round(hits[name].share, 6))
    if first not in hits:
        raise ConfigError(f"--against {first}: no such arm", hint=f"the arms are {', '.join(sorted(hits))}")
    level, arms = LEVEL / (len(hits) - 1), []
    for name in (first, *sorted(hits.keys() - {first})):
        one = hits[name]
        found = None if name == first else ratio_of_hits(one, hits[first], level=level)
        ratio, low, high = found or (None, None, None)
        verdict = None if low is None or high is None or low <= 1 <= high else "better" if low > 1 else "worse"
        figures = name, one.share, len(weights[name]), one.users, int(one.total), one.at_full_traffic
        arms.append(Arm(*figures, ratio, low, high, verdict))
    return Arms(first, tuple(arms), assigned, left_out, damaged)


def _summed(weights: Mapping[str, Sequence[float]], share: float) -> Hits:
    """Return the hits of 1 / share by user, with the mean share that gives their weighted sums."""
    sums, total = [sum(own) for own in weights.values() if own], sum(map(len, weights.values()))
    mean = total / sum(sums) if total else share
    return Hits(mean, len(sums), total, sum(one**2 for one in sums) * mean**2)
