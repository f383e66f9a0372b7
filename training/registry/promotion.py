"""Whether a candidate may become the champion: a pure rule over per-document scores.

What is compared is one measure of each document: AUC of its links, or where documents are pairs, how well their texts
retrieve their images. A candidate is promoted if every check passes:

- latest: it was scored on the latest version of the target data set;
- random: the whole bootstrap interval of its mean lies above a random model's (AUC: 50);
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

from schemas.errors import UsageError
from training.evaluation.bootstrap import Interval, compare, mean_interval
from training.evaluation.links import LinkScore
from training.evaluation.pair_scores import PairScore
from training.evaluation.score_kinds import ScoreKind
from training.registry.policy import STANDARD_POLICY, Guard, Measure, Minimum, Policy

__all__ = ["STANDARD_POLICY", "Check", "Contest", "Decision", "Policy", "decide", "refuse"]

Scores = Mapping[str, LinkScore] | Mapping[str, PairScore]
TITLES = {metric: title for kind in ScoreKind for metric, title in kind.metrics.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Scores of candidate and champion on the same documents.

    Attributes:
        dataset: NAME@VERSION they are of.
        candidate: document id -> scores.
        champion: the same of the champion; None without one.
        measure: the score that decides.
        chance: its mean for a model that knows nothing, percent; None: the policy's, of AUC.

    Raises:
        ValueError: there is no document, or the two were scored on different ones, or `auto` was not settled.
    """

    dataset: str
    candidate: Scores
    champion: Scores | None = None
    measure: Measure = Measure.AUC
    chance: float | None = None

    def __post_init__(self) -> None:
        if self.measure is Measure.AUTO:
            raise ValueError(f"{self.dataset}: expected a measure of the scores, found auto")
        if not self.candidate:
            raise ValueError(f"{self.dataset}: expected scored documents, found none")
        if self.champion is not None and self.champion.keys() != self.candidate.keys():
            counts = f"{len(self.candidate)} and {len(self.champion)}"
            raise ValueError(f"{self.dataset}: expected the same documents, found {counts}")

    @property
    def title(self) -> str:
        """Return what the measure is called in a sentence."""
        return TITLES[self.measure]

    def own(self, policy: Policy, score: str | None = None) -> Interval:
        """Return the candidate's mean of the measure, or of another score, with its interval.

        Raises:
            UsageError: the documents have no such score.
        """
        return _mean(self._column(self.candidate, score or self.measure), policy)

    def rival(self, policy: Policy) -> Interval | None:
        """Return the champion's mean of the measure with its interval."""
        return None if self.champion is None else _mean(self._column(self.champion, self.measure), policy)

    def difference(self, policy: Policy) -> Interval | None:
        """Return the paired difference of the measure's means, candidate minus champion."""
        if self.champion is None:
            return None
        ours, theirs = self._column(self.candidate, self.measure), self._column(self.champion, self.measure)
        found = compare(ours, theirs, seed=policy.seed, resamples=policy.resamples, level=policy.level)
        return found.difference

    def _column(self, scores: Scores, score: str) -> npt.NDArray[np.float64]:
        found = [getattr(scores[name], score, None) for name in self.candidate]
        if None in found:
            raise UsageError(
                f"policy: {TITLES[score]} was asked for, and the documents of {self.dataset} are scored by {self.title}"
            )
        return np.array(found, np.float64)


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
        measure: what was compared.
        candidate: its mean for the candidate, percent.
        champion: its mean for the champion on the same documents; None without one.
        difference: candidate minus champion, paired; None without a champion.
        policy: settings it was decided under.
    """

    checks: tuple[Check, ...]
    documents: int
    measure: Measure
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
        UsageError: a minimum is of a score the documents do not have.
    """
    own, difference = target.own(policy), target.difference(policy)
    checks = [_against_random(target, own, policy), _against_champion(target, difference, policy)]
    checks += _against_minimum(target, policy.minimum, policy)
    if target.champion is not None:
        checks += [_against_guard(guard, (guards or {}).get(guard.dataset), policy) for guard in policy.guards]
    if policy.latest_only and latest is not None:
        checks.append(_against_latest(target.dataset, latest))
    return Decision(
        checks=tuple(checks),
        documents=len(target.candidate),
        measure=target.measure,
        candidate=own,
        champion=target.rival(policy),
        difference=difference,
        policy=policy,
    )


def refuse(decision: Decision, name: str, reason: str) -> Decision:
    """Return the decision with one more condition that is not met."""
    return replace(decision, checks=(*decision.checks, Check(name=name, is_passed=False, reason=reason)))


def _against_random(target: Contest, own: Interval, policy: Policy) -> Check:
    chance = policy.random_auc if target.chance is None else target.chance
    is_above = own.low > chance
    verb, verdict = ("lies above", "beats") if is_above else ("does not lie above", "is not shown to beat")
    level = f"{policy.level:.0%}"
    text = f"{verdict} random: {target.title} {_show(own)} {verb} {chance:.4g} with its whole {level} interval"
    return Check(name="random", is_passed=is_above, reason=text, measured=own)


def _against_champion(target: Contest, difference: Interval | None, policy: Policy) -> Check:
    if difference is None:
        return Check(name="champion", is_passed=True, reason="there is no champion yet")
    shown = f"{target.title} differs by {_show(difference, signed=True)}, paired {policy.level:.0%} interval"
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
        f"{verb} what the champion can on {contest.dataset}: {contest.title} differs by "
        f"{_show(difference, signed=True)}, paired {policy.level:.0%} interval; {guard.margin:g} may be lost"
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
