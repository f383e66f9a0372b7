"""Whether a candidate may become the champion: a pure rule over per-document scores, and its settings.

What is compared is one measure of each document: AUC of its links, or where documents are pairs, how well their texts
retrieve their images. A candidate is promoted if every check passes:

- random: the whole interval of its mean lies above a random model's mean (AUC: 50);
- champion: it is shown to be at most a margin worse on the target (non-inferiority). The whole interval of the paired
  difference (candidate minus champion, document by document) lies above minus the margin. Two models that read
  different texts are compared on the documents both could score; one with the champion's files is as good;
- best champion: the same against the best champion there ever was, scored again on the same documents. Without it a
  chain of champions, each a little worse than the one before, falls without end;
- documents: enough documents were scored, with both models where there is a champion;
- minimum: its mean scores reach the policy's minima;
- guard: on another data set the whole interval of that difference lies above minus the guard's margin;
- group: where the policy names groups of documents, such as languages, in none of them is it shown to be more than the
  margin worse, and in those with documents enough to show it, it is shown to be at most that. The differences of all
  languages are part of every decision (`Difference`);
- editors: where the policy asks for it, those who compared it blind with the champion are shown to prefer it;
- latest: it was scored on the latest version of the target data set;
- taint: nothing was taken out of the data that it, or a model that it was trained from, was trained on;
- approval: where the policy asks for one, or the documents cannot tell, a named person has approved it (`multilink
  approve`).

Every candidate that the best champion meets is another chance for a model that is worse. So the k-th of them is judged
at half of a k-th of the error rate (`Contest.attempt`, `level_of`): `benchmarks/gate.py` simulates how often the
champion's true score falls by more than the margin.

Policy files are read in `policy.py`. Models are loaded, documents scored and aliases moved in `promotion.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from schemas.configs import Json, resolve
from schemas.messages import UsageError, counted
from schemas.versions import fingerprint
from training.data.ragged import Float64
from training.evaluation.evaluate import Evaluation
from training.metrics.intervals import (
    Interval,
    difference_interval,
    documents_needed,
    fewest_documents,
    level_of,
    mean_interval,
)
from training.metrics.links import LinkScore, PairScore, ScoreKind
from training.metrics.preference import Preference
from training.mlflow.policy import STANDARD_POLICY, By, Guard, Measure, Policy
from training.promotions.record import Approval

Scores = Mapping[str, LinkScore | PairScore]
TITLES = {metric: title for kind in ScoreKind for metric, title in kind.metrics.items()}
APPROVAL, COMPARED = "approval", ("champion", "best champion")  # checks
RANDOM_AUC = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Scores of candidate and champion on one data set.

    Attributes:
        dataset: NAME@VERSION.
        split: of it.
        candidate: document id -> scores.
        rivals: the same of the champion and, where that is another, of the best champion ever (`COMPARED`).
        attempt: how many candidates the best champion has met with this one, from 1.
        measure: the score that decides; not `auto`.
        chance: its mean for a model that knows nothing, percent.
        groups: of each kind of groups, document id -> group.
    """

    dataset: str
    split: str
    candidate: Scores
    rivals: Mapping[str, Scores] = field(default_factory=dict)
    attempt: int = 1
    measure: Measure = Measure.AUC
    chance: float = RANDOM_AUC
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return what the measure is called in a sentence."""
        return TITLES[self.measure]

    @property
    def champion(self) -> Scores | None:
        """Return the scores of the champion; None without one."""
        return self.rivals.get(COMPARED[0])

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

    def differences(self, other: Scores) -> Float64:
        """Return candidate minus another model, of the documents that both could score."""
        both = [name for name in self.candidate if name in other]
        return self._column(self.candidate, both, self.measure) - self._column(other, both, self.measure)

    def within(self, by: str) -> "dict[str, Contest]":
        """Return the contest in each group of a kind, by name; documents of no group are in none."""
        group_of = self.groups.get(by, {})

        def inside(scores: Scores, group: str) -> Scores:
            return {name: each for name, each in scores.items() if group_of.get(name) == group}

        return {
            group: replace(
                self,
                candidate=inside(self.candidate, group),
                rivals={name: inside(scores, group) for name, scores in self.rivals.items()},
            )
            for group in sorted({group_of[name] for name in self.documents if name in group_of})
        }

    def to_json(self) -> Json:
        """Return every score, by model and document: one value, one text, to the last bit."""
        rows: list[Json] = [
            {name: [*map(float, score)] for name, score in scores.items()}
            for scores in (self.candidate, *self.rivals.values())
        ]
        return [self.dataset, self.split, self.measure, rows]

    def _column(self, scores: Scores, documents: list[str], score: str) -> Float64:
        found = [getattr(scores[name], score, None) for name in documents]
        if None in found:
            raise UsageError(
                f"policy: minimum.{score}: the documents of {self.dataset} have no {TITLES[score]}; they are scored "
                f"by {self.title}"
            )
        return np.array(found, np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One condition: whether it is met, why as a sentence, and the interval it was read from, where there is one.

    Attributes:
        name: of the condition.
        is_passed: whether it is met, or a person is asked in its place.
        reason: why, as a sentence.
        measured: the interval it was read from.
        is_undecided: whether too few documents can show whether it is met.
        documents_needed: of so many documents, four of five candidates that are as good would pass; 0: not known.
    """

    name: str
    is_passed: bool
    reason: str
    measured: Interval | None = None
    is_undecided: bool = False
    documents_needed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Candidate minus champion in a group of the target's documents.

    Attributes:
        group: what tells groups apart, and its name: `language=de`.
        documents: that both could score.
        points: the mean difference with its interval, at the level of the comparison with the champion.
    """

    group: str
    documents: int
    points: Interval

    def __str__(self) -> str:
        return f"{self.group}: {_show(self.points, signed=True)} in {counted(self.documents, 'document')}"


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
        attempt: how many candidates the best champion has met with this one.
        scores: SHA-256 (hex) of every score that it was made from; empty: of none.
        approved_by: whose approval counted; empty: none was needed, or there was none.
        differences: from the champion by language, and by what else the policy groups documents by, where there are
            several groups.
    """

    checks: tuple[Check, ...]
    dataset: str
    split: str
    policy: Policy
    documents: int = 0
    measure: Measure = Measure.AUTO
    attempt: int = 1
    scores: str = ""
    approved_by: str = ""
    differences: tuple[Difference, ...] = ()

    @property
    def is_promoted(self) -> bool:
        """Return whether the candidate may become the champion."""
        return all(check.is_passed for check in self.checks)

    @property
    def is_waiting(self) -> bool:
        """Return whether all that is missing is a person's approval."""
        return [check.name for check in self.checks if not check.is_passed] == [APPROVAL]

    @property
    def beats_best(self) -> bool:
        """Return whether the candidate is shown to be better than the best champion, not only within the margin."""
        compared = [check.measured for check in self.checks if check.name in COMPARED]
        return bool(compared) and compared[-1] is not None and compared[-1].low > 0

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


def contest_of(
    dataset: str,
    split: str,
    evaluations: Sequence[Evaluation],
    measure: Measure,
    *,
    attempt: int = 1,
    groups: Mapping[str, Mapping[str, str]] | None = None,
) -> Contest:
    """Return the contest of a candidate's evaluation, the champion's and the best champion's, as far as there are some.

    They are compared by a measure that all have.

    Raises:
        UsageError: the measure is AUC, and no document has one, or those of some of the models alone have.
    """
    candidate = evaluations[0]
    if measure is Measure.AUTO and len({bool(each.scores) for each in evaluations}) > 1:
        raise UsageError(
            f"{candidate.where}: one of the models can be scored by AUC and another cannot, since they read different "
            'texts; set measure = "reciprocal_rank" in the policy'
        )
    if measure is Measure.AUTO:
        measure = Measure.AUC if candidate.scores else Measure.RECIPROCAL_RANK
    read = {id(each): _scores(each, measure) for each in evaluations}  # the same files are scored once
    own, *others = (read[id(each)] for each in evaluations)
    chance = None if measure is Measure.AUC or candidate.pairs is None else candidate.pairs.chance
    return Contest(
        dataset=dataset,
        split=split,
        candidate=own,
        rivals=dict(zip(COMPARED, others, strict=False)),
        attempt=attempt,
        measure=measure,
        chance=getattr(chance, measure, RANDOM_AUC),
        groups=groups or {},
    )


def decide(
    target: Contest,
    policy: Policy = STANDARD_POLICY,
    *,
    guards: Mapping[str, Contest] | None = None,
    latest: str | None = None,
    approvals: Sequence[Approval] = (),
    preference: Preference | None = None,
) -> Decision:
    """Return whether the candidate may become the champion.

    Args:
        target: scores on the data set the models are for.
        policy: settings.
        guards: scores on each of the policy's guard sets, by name, where there is a champion.
        latest: NAME@VERSION of the latest version of the target; None: not known, so not checked.
        approvals: of the candidate.
        preference: of editors, the champion being the first; None: they compared nothing.

    Raises:
        UsageError: a minimum is of a score the documents do not have.
    """
    checks = [_against_random(target, policy), _enough_documents(target, policy), *_against_minimum(target, policy)]
    checks[1:1] = _against_champions(target, policy)
    if target.champion is not None:
        checks += [_against_guard(guard, (guards or {})[guard.dataset], policy) for guard in policy.guards]
        checks += [check for each in policy.groups for check in _within_groups(each.by, target, policy)]
        is_new = target.champion is not target.candidate
        checks += [_preferred(preference)] if policy.editors_preferred and is_new else []
    if policy.latest_only and latest is not None:
        is_latest = target.dataset == latest
        words = "the latest version" if is_latest else f"but the latest version is {latest}"
        checks.append(Check(name="latest", is_passed=is_latest, reason=f"scored on {target.dataset}, {words}"))
    needs_person = any(check.is_undecided for check in checks)
    approved_by = ""
    if policy.approval or needs_person:
        accepted = (each.by for each in approvals if not policy.approvers or any(map(each.is_by, policy.approvers)))
        approved_by = next(accepted, "")
        checks.append(_approved(approved_by, approvals, policy.approvers))
    if needs_person:
        checks = [replace(check, is_passed=check.is_passed or check.is_undecided) for check in checks]
    return Decision(
        checks=tuple(checks),
        dataset=target.dataset,
        split=target.split,
        policy=policy,
        documents=len(target.documents),
        measure=target.measure,
        attempt=target.attempt,
        scores=fingerprint([each.to_json() for each in (target, *(guards or {}).values())]),
        approved_by=approved_by,
        differences=tuple(_differences(target, policy)),
    )


def refuse(decision: Decision, name: str, reason: str) -> Decision:
    """Return the decision with one more condition that is not met."""
    return replace(decision, checks=(*decision.checks, Check(name=name, is_passed=False, reason=reason)))


def _against_random(target: Contest, policy: Policy) -> Check:
    own = target.mean(policy.level)
    is_above = own.low > target.chance
    verb, verdict = ("is above", "beats") if is_above else ("is not above", "is not shown to beat")
    numbers = f"{target.title} {_show(own)} {verb} {target.chance:.4g} with its whole {policy.level:.0%} interval"
    return Check(name="random", is_passed=is_above, reason=f"{verdict} random: {numbers}", measured=own)


def _against_champions(target: Contest, policy: Policy) -> Iterator[Check]:
    if target.champion is None:
        yield Check(name="champion", is_passed=True, reason="there is no champion yet")
    level = level_of(policy.level, target.attempt)
    for name, other in target.rivals.items():
        yield _within_margin(name, target, other, policy.margin, level)


def _within_groups(by: str, target: Contest, policy: Policy) -> Iterator[Check]:
    """Yield the comparison with the champions in each group; of few documents, a check that it is not shown worse."""
    level = level_of(policy.level, target.attempt)
    for group, contest in target.within(by).items():
        for name, other in contest.rivals.items():
            if target.rivals[name] is target.candidate:
                continue
            count, needed = len(contest.differences(other)), fewest_documents(policy.margin, level=level)
            check = _within_margin(f"{name} in {by} {group}", contest, other, policy.margin, level)
            if check.is_undecided and (count < needed or not needed):
                enough = f", {needed} are needed" if needed else ""
                reason = f"{count} documents in {by} {group} are too few{enough}: not shown to be worse"
                check = replace(check, is_passed=True, is_undecided=False, reason=reason)
            yield replace(check, name=f"group {by}={group}, {name}")


def _differences(target: Contest, policy: Policy) -> Iterator[Difference]:
    """Yield candidate minus champion in every group of the kinds that have several."""
    level = level_of(policy.level, target.attempt)
    for by in dict.fromkeys((By.LANGUAGE, *(each.by for each in policy.groups))):
        groups = target.within(by)
        for group, contest in groups.items() if len(groups) > 1 else ():
            if contest.champion is not None:
                found = contest.differences(contest.champion)
                yield Difference(
                    group=f"{by}={group}", documents=len(found), points=difference_interval(found, level=level)
                )


def _within_margin(name: str, contest: Contest, other: Scores, margin: float, level: float) -> Check:
    """Check whether the candidate is shown to be at most a margin worse than another model, such as the champion."""
    if other is contest.candidate:
        return Check(name=name, is_passed=True, reason=f"its files are those of the {name}")
    differences = contest.differences(other)
    found = difference_interval(differences, level=level)
    is_within, is_worse = found.low >= -margin, found.high < -margin
    verdict = f"at most {margin:g} worse than" if is_within else "not shown to be within the margin of"
    if found.low > 0:
        verdict = "better than"
    elif is_worse:
        verdict = "worse than"
    needed = documents_needed(differences, margin, level=level)
    numbers = f"{contest.title} differs by {_show(found, signed=True)}, paired {100 * level:.4g}% interval"
    bound = f"{'wholly above' if is_within else 'wholly below' if is_worse else 'reaches below'} {-margin:g}"
    enough = f"; {needed} documents would show it of four in five that are as good" if needed else ""
    return Check(
        name=name,
        is_passed=is_within,
        reason=f"{verdict} the {name}: {numbers} {bound}{'' if is_within or is_worse else enough}",
        measured=found,
        is_undecided=not is_within and not is_worse,
        documents_needed=needed,
    )


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


def _preferred(preference: Preference | None) -> Check:
    if preference is None:
        return Check(name="editors", is_passed=False, reason="nobody compared it blind with the champion")
    is_better, first, second = preference.is_second_better, preference.first, preference.second
    verdicts = {None: "are not shown to prefer either model", True: "prefer it to the champion"}
    verdict = verdicts.get(is_better, "prefer the champion")
    numbers = f"{second} articles for it, {first} for the champion, evidence {preference.evidence:.3g} of 20"
    return Check(name="editors", is_passed=is_better is True, reason=f"editors {verdict}: {numbers}")


def _approved(by: str, approvals: Sequence[Approval], approvers: Sequence[str]) -> Check:
    if by:
        return Check(name=APPROVAL, is_passed=True, reason=f"approved by {by}")
    known = f"; {', '.join(each.by for each in approvals)} approved it and is not one of them" if approvals else ""
    reason = f"waits for approval by {' or '.join(approvers) or 'a named person'} (multilink approve){known}"
    return Check(name=APPROVAL, is_passed=False, reason=reason)


def _against_guard(guard: Guard, contest: Contest, policy: Policy) -> Check:
    name, enough = f"guard {guard.dataset}", _enough_documents(contest, policy)
    if contest.champion is None or not enough.is_passed:
        return replace(enough, name=name, is_passed=False)
    found = _within_margin(f"champion on {contest.dataset}", contest, contest.champion, guard.margin, policy.level)
    return replace(found, name=name, is_undecided=False)  # a guard is not left to a person


def _scores(found: Evaluation, measure: Measure) -> Scores:
    """Return document id -> scores of links or of retrieval, of the documents that have them; there is one."""
    if measure is not Measure.AUC and found.pairs is not None:
        return found.by_document(found.pairs)
    if not found.scores:
        raise UsageError(f'{found.where}: no document has an AUC; set measure = "reciprocal_rank" in the policy')
    return found.by_document(found.scores)


def _show(interval: Interval, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    return f"{interval.mean:{sign}.2f} ({interval.low:{sign}.2f} to {interval.high:{sign}.2f})"
