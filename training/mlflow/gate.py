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

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.configs import require, restore
from schemas.documents import Split
from schemas.errors import ConfigError, NotFoundError, UsageError
from training.evaluation.bootstrap import LEVEL, RESAMPLES, Interval, compare, mean_interval
from training.evaluation.evaluate import Evaluation
from training.evaluation.links import LinkScore
from training.evaluation.pair_scores import PairScore
from training.evaluation.score_kinds import ScoreKind

Scores = Mapping[str, LinkScore] | Mapping[str, PairScore]
TITLES = {metric: title for kind in ScoreKind for metric, title in kind.metrics.items()}


class Measure(StrEnum):
    """What decides; all but AUC are of retrieval, an image for a text, and exist where AUC does not.

    `auto` is AUC, and where no document has one (a text and an image each), the reciprocal rank.
    """

    AUTO = "auto"
    AUC = "auc"
    RECIPROCAL_RANK = "reciprocal_rank"
    RECALL_AT_1 = "recall_at_1"
    RECALL_AT_5 = "recall_at_5"
    RECALL_AT_10 = "recall_at_10"

    @property
    def is_of_retrieval(self) -> bool:
        """Return whether it is for sure of retrieval."""
        return self not in (Measure.AUTO, Measure.AUC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimum:
    """Means in percent that a candidate must reach on the target; None: any.

    The first three are of links, the others of retrieval: they are of the kind of the policy's measure.
    """

    auc: float | None = None
    precision_at_1: float | None = None
    precision_at_5: float | None = None
    reciprocal_rank: float | None = None
    recall_at_1: float | None = None
    recall_at_5: float | None = None
    recall_at_10: float | None = None

    def __post_init__(self) -> None:
        for name in (item.name for item in fields(self)):
            value = getattr(self, name)
            is_percent = value is None or 0 <= value <= 100
            require(is_percent, field=f"minimum.{name}", value=value, rule="must be from 0 to 100")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A data set on which a candidate must keep what the champion can.

    Attributes:
        dataset: its name; the latest version is scored.
        margin: mean of the measure, in percentage points, that the candidate may lose.
        split: whose documents are scored.
        measure: what decides on this data set.
    """

    dataset: str = ""
    margin: float = 0.0
    split: Split = Split.TEST
    measure: Measure = Measure.AUTO

    def __post_init__(self) -> None:
        is_name = bool(self.dataset) and "@" not in self.dataset
        rule = "expected a name without version; the latest is scored"
        require(is_name, field="guards.dataset", value=self.dataset, rule=rule)
        require(self.margin >= 0, field="guards.margin", value=self.margin, rule="must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings of the rule.

    Attributes:
        level: of the intervals.
        resamples: bootstrap samples of the documents.
        seed: of the samples.
        measure: what decides on the target.
        random_auc: mean AUC of a model that knows nothing, in percent.
        latest_only: whether the data set scored on must be the latest version in its lake.
        minimum: scores that must be reached.
        guards: data sets on which the candidate may not fall back.
    """

    level: float = LEVEL
    resamples: int = RESAMPLES
    seed: int = 0
    measure: Measure = Measure.AUTO
    random_auc: float = 50.0
    latest_only: bool = True
    minimum: Minimum = field(default_factory=Minimum)
    guards: tuple[Guard, ...] = ()

    def __post_init__(self) -> None:
        require(0 < self.level < 1, field="level", value=self.level, rule="must be between 0 and 1")
        require(self.resamples >= 1, field="resamples", value=self.resamples, rule="must be at least 1")
        require(self.seed >= 0, field="seed", value=self.seed, rule="must not be negative")
        is_percent = 0 <= self.random_auc <= 100
        require(is_percent, field="random_auc", value=self.random_auc, rule="must be from 0 to 100")
        names = [guard.dataset for guard in self.guards]
        require(len(set(names)) == len(names), field="guards", value=names, rule="name a data set once")


STANDARD_POLICY = Policy()


def read_policy(path: Path) -> Policy:
    """Return the policy of a TOML file.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it is no TOML, a key is unknown (the nearest is named), a value has the wrong type or range.
    """
    if not path.is_file():
        raise NotFoundError(f"--policy {path}: no such file")
    try:
        return restore(Policy, tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"--policy {path}: expected TOML: {problem}") from problem
    except ConfigError as problem:
        raise ConfigError(f"--policy {path}: {problem}") from problem


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


def contest_of(dataset: str, candidate: Evaluation, champion: Evaluation | None, measure: Measure) -> Contest:
    """Return the contest of two models' evaluations on the same documents, by a measure that both have.

    Raises:
        UsageError: the measure is AUC, and no document has one, or those of one model alone have.
    """
    if measure is Measure.AUTO and champion is not None and bool(candidate.scores) != bool(champion.scores):
        raise UsageError(
            f"{candidate.where}: documents have an AUC as one of the two models reads them and none as the other does; "
            "let the policy's measure be reciprocal_rank"
        )
    if measure is Measure.AUTO:
        measure = Measure.AUC if candidate.scores else Measure.RECIPROCAL_RANK
    if measure is Measure.AUC:
        rival = None if champion is None else _link_scores(champion)
        return Contest(dataset=dataset, candidate=_link_scores(candidate), champion=rival)
    return Contest(
        dataset=dataset,
        candidate=_pair_scores(candidate),
        champion=None if champion is None else _pair_scores(champion),
        measure=measure,
        chance=None if candidate.pairs is None else getattr(candidate.pairs.chance, measure),
    )


def _link_scores(found: Evaluation) -> dict[str, LinkScore]:
    """Return document id -> scores of links, of the documents that can be scored; there is one."""
    if not found.scores:
        raise UsageError(f"{found.where}: no document has an AUC; let the policy's measure be reciprocal_rank")
    return {found.ids[place]: score for place, score in zip(found.scored, found.scores, strict=True)}


def _pair_scores(found: Evaluation) -> dict[str, PairScore]:
    """Return document id -> scores of retrieval, of the documents with a link."""
    pairs = found.pairs
    return {} if pairs is None else {found.ids[p]: s for p, s in zip(pairs.documents, pairs.scores, strict=True)}
