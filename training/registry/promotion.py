"""Whether a candidate may become the champion: a pure rule over per-document scores.

The rule: a candidate is promoted if it beats random, and is not worse than the champion on the same documents. It
beats random when the whole 95% bootstrap interval of its mean AUC lies above 50. It is worse when the whole interval of
the paired difference (candidate minus champion, the same resampled documents for both) lies below zero: a difference
that the documents at hand cannot tell from none is no reason to keep the older model. No champion, no comparison.

Loading models, scoring documents and moving aliases are `promote.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from training.evaluation.bootstrap import LEVEL, RESAMPLES, Interval, compare, mean_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings of the rule.

    Attributes:
        level: of the intervals.
        resamples: bootstrap samples of the documents.
        seed: of the samples.
        random_auc: mean AUC of a model that knows nothing, in percent.
    """

    level: float = LEVEL
    resamples: int = RESAMPLES
    seed: int = 0
    random_auc: float = 50.0


STANDARD_POLICY = Policy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided, from what.

    Attributes:
        is_promoted: whether the candidate may become the champion.
        reasons: why or why not, a sentence each.
        documents: documents that were scored.
        candidate: mean AUC of the candidate, percent.
        champion: mean AUC of the champion on the same documents; None without one.
        difference: candidate minus champion, paired; None without a champion.
        policy: settings it was decided under.
    """

    is_promoted: bool
    reasons: tuple[str, ...]
    documents: int
    candidate: Interval
    champion: Interval | None
    difference: Interval | None
    policy: Policy

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def decide(
    candidate: Mapping[str, float], champion: Mapping[str, float] | None, policy: Policy = STANDARD_POLICY
) -> Decision:
    """Return whether the candidate may become the champion, from document id -> AUC in percent of either.

    Raises:
        ValueError: there is no document, or the two were scored on different documents.
    """
    documents = list(candidate)
    ours = np.array([candidate[name] for name in documents])
    own = mean_interval(ours, seed=policy.seed, resamples=policy.resamples, level=policy.level)
    beats_random, random_reason = _against_random(own, policy)
    theirs_interval = difference = None
    is_not_worse, champion_reason = True, "there is no champion yet"
    if champion is not None:
        if champion.keys() != candidate.keys():
            raise ValueError(f"expected the same documents, found {len(candidate)} and {len(champion)}")
        theirs = np.array([champion[name] for name in documents])
        settings = {"seed": policy.seed, "resamples": policy.resamples}
        theirs_interval = mean_interval(theirs, level=policy.level, **settings)
        difference = compare(ours, theirs, level=policy.level, **settings).difference
        is_not_worse, champion_reason = _against_champion(difference, policy)
    return Decision(
        is_promoted=beats_random and is_not_worse,
        reasons=(random_reason, champion_reason),
        documents=len(documents),
        candidate=own,
        champion=theirs_interval,
        difference=difference,
        policy=policy,
    )


def _against_random(own: Interval, policy: Policy) -> tuple[bool, str]:
    is_above = own.low > policy.random_auc
    verb, verdict = ("lies above", "beats") if is_above else ("does not lie above", "is not shown to beat")
    text = f"{verdict} random: AUC {_show(own)} {verb} {policy.random_auc:g} with its whole {policy.level:.0%} interval"
    return is_above, text


def _against_champion(difference: Interval, policy: Policy) -> tuple[bool, str]:
    shown = f"AUC differs by {_show(difference, signed=True)}, paired {policy.level:.0%} interval"
    if difference.high < 0:
        return False, f"worse than the champion: {shown} wholly below zero"
    if difference.low > 0:
        return True, f"better than the champion: {shown} wholly above zero"
    return True, f"not worse than the champion: {shown} reaches zero"


def _show(interval: Interval, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    return f"{interval.mean:{sign}.2f} ({interval.low:{sign}.2f} to {interval.high:{sign}.2f})"
