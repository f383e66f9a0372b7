"""Whether a candidate may become the champion: a pure rule over per-document scores, and its settings.

What is compared is one measure of each document: AUC of its links, or where documents are pairs, how well their texts
retrieve their images. A candidate is promoted if every check passes:

- random: the whole interval of its mean lies above a random model's mean (AUC: 50);
- champion: it is not worse on the target. It is worse when the whole interval of the paired difference (candidate minus
  champion, document by document) lies below zero: a difference that may be none, by the documents at hand, is no reason
  to keep the older model. Two models that read different texts are compared on the documents both could score;
- documents: enough documents were scored, with both models where there is a champion;
- minimum: its mean scores reach the policy's minima;
- guard: on another data set the whole interval of that difference lies above minus the margin. Here the burden of proof
  is the candidate's (a test of non-inferiority);
- latest: it was scored on the latest version of the target data set;
- approval: where the policy asks for one, a named person has approved it (`multilink approve`).

Policy files are read in `policy.py`. Models are loaded, documents scored and aliases moved in `promotion.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from scipy.special import stdtrit

from schemas.configs import Json, resolve
from schemas.errors import UsageError
from schemas.evaluation import LEVEL
from training.data.ragged import Float64
from training.data.streams import stream
from training.evaluation.evaluate import Evaluation
from training.metrics.bootstrap import Interval
from training.metrics.links import LinkScore, PairScore, ScoreKind
from training.mlflow.policy import BEST, STANDARD_POLICY, Guard, Measure, Policy

Scores = Mapping[str, LinkScore | PairScore]
TITLES = {metric: title for kind in ScoreKind for metric, title in kind.metrics.items()}
APPROVAL = "approval"  # the check of it
RANDOM_AUC = 50.0
RESAMPLES = 10_000
NUMBERS_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Scores of candidate and champion on one data set.

    Attributes:
        dataset: NAME@VERSION.
        split: of it.
        candidate: document id -> scores.
        champion: the same of the champion; None without one.
        measure: the score that decides; not `auto`.
        chance: its mean for a model that knows nothing, percent.
    """

    dataset: str
    split: str
    candidate: Scores
    champion: Scores | None = None
    measure: Measure = Measure.AUC
    chance: float = RANDOM_AUC

    @property
    def title(self) -> str:
        """Return what the measure is called in a sentence."""
        return TITLES[self.measure]

    @property
    def documents(self) -> list[str]:
        """Return the documents that were scored, with both models where there is a champion."""
        return [name for name in self.candidate if self.champion is None or name in self.champion]

    def mean(self, level: float, score: str | None = None) -> Interval:
        """Return the candidate's mean of the measure, or of another score, over all of its documents.

        Raises:
            UsageError: the documents have no such score.
        """
        return mean_interval(self._column(self.candidate, list(self.candidate), score or self.measure), level=level)

    def difference(self, level: float) -> Interval | None:
        """Return the paired difference of the measure's means, candidate minus champion; None without a champion."""
        if self.champion is None:
            return None
        ours, theirs = (self._column(each, self.documents, self.measure) for each in (self.candidate, self.champion))
        return difference_interval(ours - theirs, level=level)

    def _column(self, scores: Scores, documents: list[str], score: str) -> Float64:
        found = [getattr(scores[name], score, None) for name in documents]
        if None in found:
            raise UsageError(
                f"policy: expected a minimum of {self.title}, by which the documents of {self.dataset} are scored; "
                f"found one of {TITLES[score]}"
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
    """A decision on a promotion, and what it was made from.

    Attributes:
        checks: every condition, met or not.
        dataset: NAME@VERSION of the target.
        split: of it.
        policy: settings it was decided under.
        documents: documents of the target that were scored.
        measure: what was compared.
    """

    checks: tuple[Check, ...]
    dataset: str
    split: str
    policy: Policy
    documents: int = 0
    measure: Measure = Measure.AUTO

    @property
    def is_promoted(self) -> bool:
        """Return whether the candidate may become the champion."""
        return all(check.is_passed for check in self.checks)

    @property
    def is_waiting(self) -> bool:
        """Return whether all that is missing is a person's approval."""
        return [check.name for check in self.checks if not check.is_passed] == [APPROVAL]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why or why not, a sentence each."""
        return tuple(check.reason for check in self.checks)

    def to_json(self) -> dict[str, Json]:
        return resolve(self) | {
            "is_promoted": self.is_promoted,
            "is_waiting": self.is_waiting,
            "reasons": list(self.reasons),
        }


def mean_interval(scores: Float64, *, level: float = LEVEL) -> Interval:
    """Return the mean of per-document scores from 0 to 100, with an interval that is sound however few they are."""
    low, high = mean_bounds(np.asarray(scores)[:, None], level=level)
    return Interval(float(np.mean(scores)), float(low[0]), float(high[0]))


def mean_bounds(scores: Float64, *, level: float = LEVEL) -> tuple[Float64, Float64]:
    """Return lower and upper bounds of k means from n x k scores, each 0 to 100; a row is a document.

    A Bayesian bootstrap with one document more, which has the worst score for the lower bound and the best for the
    upper (Gaffke 2005; Learned-Miller and Thomas 2019). No distribution of scores is known for which such a bound
    misses the mean more often than it may, whatever n; for many documents it is that of the bootstrap. The percentile
    bootstrap alone has no width for one document, and Student's interval misses where scores are skewed.
    """
    draws, count = stream("gate", 0), len(scores) + 1
    block = max(1, NUMBERS_AT_ONCE // count)
    lows, spare = [], []
    for start in range(0, RESAMPLES, block):
        weights = draws.standard_exponential((min(block, RESAMPLES - start), count))
        weights /= weights.sum(axis=1, keepdims=True)
        lows.append(weights[:, 1:] @ scores)
        spare.append(weights[:, :1] * BEST)
    means, tail = np.concatenate(lows), (1 - level) / 2
    low = np.quantile(means, tail, axis=0)
    return low, np.quantile(means + np.concatenate(spare), 1 - tail, axis=0)


def difference_interval(differences: Float64, *, level: float = LEVEL) -> Interval:
    """Return the mean of per-document differences with Student's interval; of fewer than two it is unbounded."""
    count = len(differences)
    if count < 2:
        return Interval(float(differences.sum()), -BEST, BEST)
    mean, error = float(differences.mean()), float(differences.std(ddof=1)) / count**0.5
    half = float(stdtrit(count - 1, (1 + level) / 2)) * error
    return Interval(mean, mean - half, mean + half)


def contest_of(dataset: str, split: str, evaluations: Sequence[Evaluation], measure: Measure) -> Contest:
    """Return the contest of a candidate's evaluation and, where there is one, the champion's, by a measure both have.

    Raises:
        UsageError: the measure is AUC, and no document has one, or those of one model alone have.
    """
    candidate = evaluations[0]
    if measure is Measure.AUTO and len({bool(each.scores) for each in evaluations}) > 1:
        raise UsageError(
            f"{candidate.where}: documents have an AUC as one of the two models reads them and none as the other does; "
            'let the policy have measure = "reciprocal_rank"'
        )
    if measure is Measure.AUTO:
        measure = Measure.AUC if candidate.scores else Measure.RECIPROCAL_RANK
    scores = [_scores(each, measure) for each in evaluations]
    chance = None if measure is Measure.AUC or candidate.pairs is None else candidate.pairs.chance
    return Contest(
        dataset=dataset,
        split=split,
        candidate=scores[0],
        champion=scores[1] if len(scores) > 1 else None,
        measure=measure,
        chance=getattr(chance, measure, RANDOM_AUC),
    )


def decide(
    target: Contest,
    policy: Policy = STANDARD_POLICY,
    *,
    guards: Mapping[str, Contest] | None = None,
    latest: str | None = None,
    approved_by: str = "",
) -> Decision:
    """Return whether the candidate may become the champion.

    Args:
        target: scores on the data set the models are for.
        policy: settings.
        guards: scores on each of the policy's guard sets, by name, where there is a champion.
        latest: NAME@VERSION of the latest version of the target; None: not known, so not checked.
        approved_by: who approved the candidate; empty: nobody did.

    Raises:
        UsageError: a minimum is of a score the documents do not have.
    """
    checks = [_against_random(target, policy), _against_champion(target, policy), _enough_documents(target, policy)]
    checks += _against_minimum(target, policy)
    if target.champion is not None:
        checks += [_against_guard(guard, (guards or {})[guard.dataset], policy) for guard in policy.guards]
    if policy.latest_only and latest is not None:
        is_latest = target.dataset == latest
        words = "the latest version" if is_latest else f"but the latest version is {latest}"
        checks.append(Check(name="latest", is_passed=is_latest, reason=f"scored on {target.dataset}, {words}"))
    if policy.approval:
        checks.append(_approved(approved_by, policy.approvers))
    return Decision(
        checks=tuple(checks),
        dataset=target.dataset,
        split=target.split,
        policy=policy,
        documents=len(target.documents),
        measure=target.measure,
    )


def refuse(decision: Decision, name: str, reason: str) -> Decision:
    """Return the decision with one more condition that is not met."""
    return replace(decision, checks=(*decision.checks, Check(name=name, is_passed=False, reason=reason)))


def _against_random(target: Contest, policy: Policy) -> Check:
    own = target.mean(policy.level)
    is_above = own.low > target.chance
    verb, verdict = ("lies above", "beats") if is_above else ("does not lie above", "is not shown to beat")
    numbers = f"{target.title} {_show(own)} {verb} {target.chance:.4g} with its whole {policy.level:.0%} interval"
    return Check(name="random", is_passed=is_above, reason=f"{verdict} random: {numbers}", measured=own)


def _against_champion(target: Contest, policy: Policy) -> Check:
    difference = target.difference(policy.level)
    if difference is None:
        return Check(name="champion", is_passed=True, reason="there is no champion yet")
    is_kept = difference.high >= 0
    verdict = "worse than" if not is_kept else "better than" if difference.low > 0 else "not worse than"
    where = "reaches zero" if is_kept and difference.low <= 0 else f"wholly {'above' if is_kept else 'below'} zero"
    numbers = f"{target.title} differs by {_show(difference, signed=True)}, paired {policy.level:.0%} interval"
    text = f"{verdict} the champion: {numbers} {where}"
    return Check(name="champion", is_passed=is_kept, reason=text, measured=difference)


def _enough_documents(contest: Contest, policy: Policy) -> Check:
    found, both = len(contest.documents), "" if contest.champion is None else " with both models"
    text = f"{found} documents of {contest.dataset}, split {contest.split}, could be scored{both}"
    is_enough = found >= policy.min_documents
    return Check(name="documents", is_passed=is_enough, reason=f"{text}; at least {policy.min_documents} are needed")


def _against_minimum(target: Contest, policy: Policy) -> Iterator[Check]:
    for score, wanted in asdict(policy.minimum).items():
        if wanted is not None:
            own = target.mean(policy.level, score)
            verb = "reaches" if own.mean >= wanted else "does not reach"
            text = f"{TITLES[score]} {_show(own)} {verb} the minimum of {wanted:g}"
            yield Check(name=f"minimum {score}", is_passed=own.mean >= wanted, reason=text, measured=own)


def _approved(by: str, approvers: Sequence[str]) -> Check:
    if by and (not approvers or by in approvers):
        return Check(name=APPROVAL, is_passed=True, reason=f"approved by {by}")
    known = f"; {by}, who approved it, is none of them" if by else ""
    reason = f"waits for approval by {' or '.join(approvers) or 'a named person'} (multilink approve){known}"
    return Check(name=APPROVAL, is_passed=False, reason=reason)


def _against_guard(guard: Guard, contest: Contest, policy: Policy) -> Check:
    name, difference = f"guard {guard.dataset}", contest.difference(policy.level)
    enough = _enough_documents(contest, policy)
    if difference is None or not enough.is_passed:
        return replace(enough, name=name, is_passed=False)
    is_kept = difference.low >= -guard.margin
    verb = "keeps" if is_kept else "is not shown to keep"
    text = (
        f"{verb} what the champion can on {contest.dataset}: {contest.title} differs by "
        f"{_show(difference, signed=True)}, paired {policy.level:.0%} interval; {guard.margin:g} may be lost"
    )
    return Check(name=name, is_passed=is_kept, reason=text, measured=difference)


def _scores(found: Evaluation, measure: Measure) -> Scores:
    """Return document id -> scores of links or of retrieval, of the documents that have them; there is one."""
    if measure is not Measure.AUC and found.pairs is not None:
        return found.by_document(found.pairs)
    if not found.scores:
        raise UsageError(f'{found.where}: no document has an AUC; let the policy have measure = "reciprocal_rank"')
    return found.by_document(found.scores)


def _show(interval: Interval, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    return f"{interval.mean:{sign}.2f} ({interval.low:{sign}.2f} to {interval.high:{sign}.2f})"
