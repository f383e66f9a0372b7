"""Whether a candidate may become the champion: a pure rule over per-document scores.

A candidate is promoted if every check passes:

- latest: it was scored on the latest version of the target data set;
- random: the whole bootstrap interval of its mean AUC lies above a random model's 50;
- minimum: its mean scores reach the policy's minima;
- champion: it is not worse on the target. It is worse when the whole interval of the paired difference (candidate minus
  champion, the same resampled documents for both) lies below zero: a difference that the documents at hand cannot
  tell from none is no reason to keep the older model;
- guard: on another data set the whole interval of that difference lies above minus the margin. Here the burden of proof
  is the candidate's (a test of non-inferiority): the margin is the leave it has to lose, and not more may be lost.

No champion, no comparison. The settings are `policy.py`'s; loading models, scoring documents and moving aliases are
`promote.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from training.evaluation.bootstrap import Interval, compare, mean_interval
from training.evaluation.links import LinkScore
from training.registry.policy import STANDARD_POLICY, Guard, Minimum, Policy

__all__ = ["STANDARD_POLICY", "Check", "Contest", "Decision", "Policy", "decide", "refuse"]

Scores = Mapping[str, LinkScore]
TITLES = {"auc": "AUC", "precision_at_1": "p@1", "precision_at_5": "p@5"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Scores of candidate and champion on the same documents.

    Attributes:
        dataset: NAME@VERSION they are of.
        candidate: document id -> scores.
        champion: the same of the champion; None without one.

    Raises:
        ValueError: there is no document, or the two were scored on different ones.
    """

    dataset: str
    candidate: Scores
    champion: Scores | None = None

    def __post_init__(self) -> None:
        if not self.candidate:
            raise ValueError(f"{self.dataset}: expected scored documents, found none")
        if self.champion is not None and self.champion.keys() != self.candidate.keys():
            counts = f"{len(self.candidate)} and {len(self.champion)}"
            raise ValueError(f"{self.dataset}: expected the same documents, found {counts}")

    def own(self, policy: Policy, score: str = "auc") -> Interval:
        """Return the candidate's mean with its interval."""
        return _mean(self._column(self.candidate, score), policy)

    def rival(self, policy: Policy) -> Interval | None:
        """Return the champion's mean AUC with its interval."""
        return None if self.champion is None else _mean(self._column(self.champion, "auc"), policy)

    def difference(self, policy: Policy) -> Interval | None:
        """Return the paired difference of mean AUC, candidate minus champion."""
        if self.champion is None:
            return None
        ours, theirs = self._column(self.candidate, "auc"), self._column(self.champion, "auc")
        found = compare(ours, theirs, seed=policy.seed, resamples=policy.resamples, level=policy.level)
        return found.difference

    def _column(self, scores: Scores, score: str) -> npt.NDArray[np.float64]:
        return np.array([getattr(scores[name], score) for name in self.candidate], np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One condition: whether it is met, why as a sentence, and the interval it was read from, where there is one."""

    name: str
    is_passed: bool
    reason: str
    measured: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided, from what.

    Attributes:
        checks: every condition, met or not.
        documents: documents of the target that were scored.
        candidate: mean AUC of the candidate, percent.
        champion: mean AUC of the champion on the same documents; None without one.
        difference: candidate minus champion, paired; None without a champion.
        policy: settings it was decided under.
    """

    checks: tuple[Check, ...]
    documents: int
    candidate: Interval
    champion: Interval | None
    difference: Interval | None
    policy: Policy

    @property
    def is_promoted(self) -> bool:
        """Return whether the candidate may become the champion."""
        return all(check.is_passed for check in self.checks)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why or why not, a sentence each."""
        return tuple(check.reason for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"is_promoted": self.is_promoted, "reasons": list(self.reasons)}


def decide(
    target: Contest,
    policy: Policy = STANDARD_POLICY,
    *,
    guards: Mapping[str, Contest] | None = None,
    latest: str | None = None,
) -> Decision:
    """Return whether the candidate may become the champion.

    Args:
        target: scores on the data set the models are for.
        policy: settings.
        guards: scores on each of the policy's guard sets, by name.
        latest: NAME@VERSION of the latest version of the target; None: not known, so not checked.

    Raises:
        ValueError: there is a champion, and a guard set without scores.
    """
    own, difference = target.own(policy), target.difference(policy)
    checks = [_against_random(own, policy), _against_champion(difference, policy)]
    checks += _against_minimum(target, policy.minimum, policy)
    if target.champion is not None:
        checks += [_against_guard(guard, (guards or {}).get(guard.dataset), policy) for guard in policy.guards]
    if policy.latest_only and latest is not None:
        checks.append(_against_latest(target.dataset, latest))
    return Decision(
        checks=tuple(checks),
        documents=len(target.candidate),
        candidate=own,
        champion=target.rival(policy),
        difference=difference,
        policy=policy,
    )


def refuse(decision: Decision, name: str, reason: str) -> Decision:
    """Return the decision with one more condition that is not met."""
    return replace(decision, checks=(*decision.checks, Check(name=name, is_passed=False, reason=reason)))


def _against_random(own: Interval, policy: Policy) -> Check:
    is_above = own.low > policy.random_auc
    verb, verdict = ("lies above", "beats") if is_above else ("does not lie above", "is not shown to beat")
    text = f"{verdict} random: AUC {_show(own)} {verb} {policy.random_auc:g} with its whole {policy.level:.0%} interval"
    return Check(name="random", is_passed=is_above, reason=text, measured=own)


def _against_champion(difference: Interval | None, policy: Policy) -> Check:
    if difference is None:
        return Check(name="champion", is_passed=True, reason="there is no champion yet")
    shown = f"AUC differs by {_show(difference, signed=True)}, paired {policy.level:.0%} interval"
    if difference.high < 0:
        text = f"worse than the champion: {shown} wholly below zero"
    elif difference.low > 0:
        text = f"better than the champion: {shown} wholly above zero"
    else:
        text = f"not worse than the champion: {shown} reaches zero"
    return Check(name="champion", is_passed=difference.high >= 0, reason=text, measured=difference)


def _against_minimum(target: Contest, minimum: Minimum, policy: Policy) -> Iterator[Check]:
    for score in (item.name for item in fields(minimum)):
        wanted = getattr(minimum, score)
        if wanted is None:
            continue
        own = target.own(policy, score)
        verb = "reaches" if own.mean >= wanted else "does not reach"
        text = f"{TITLES[score]} {_show(own)} {verb} the minimum of {wanted:g}"
        yield Check(name=f"minimum {score}", is_passed=own.mean >= wanted, reason=text, measured=own)


def _against_guard(guard: Guard, contest: Contest | None, policy: Policy) -> Check:
    difference = None if contest is None else contest.difference(policy)
    if contest is None or difference is None:
        raise ValueError(f"guard {guard.dataset}: expected scores of candidate and champion")
    is_kept = difference.low >= -guard.margin
    verb = "keeps" if is_kept else "is not shown to keep"
    text = (
        f"{verb} what the champion can on {contest.dataset}: AUC differs by {_show(difference, signed=True)}, "
        f"paired {policy.level:.0%} interval; {guard.margin:g} may be lost"
    )
    return Check(name=f"guard {guard.dataset}", is_passed=is_kept, reason=text, measured=difference)


def _against_latest(dataset: str, latest: str) -> Check:
    is_latest = dataset == latest
    text = f"scored on {dataset}, " + ("the latest version" if is_latest else f"but the latest version is {latest}")
    return Check(name="latest", is_passed=is_latest, reason=text)


def _mean(values: npt.NDArray[np.float64], policy: Policy) -> Interval:
    return mean_interval(values, seed=policy.seed, resamples=policy.resamples, level=policy.level)


def _show(interval: Interval, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    return f"{interval.mean:{sign}.2f} ({interval.low:{sign}.2f} to {interval.high:{sign}.2f})"
