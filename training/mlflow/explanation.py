"""The gate's decision in plain words, with its numbers."""

from collections.abc import Iterator

from training.metrics.intervals import level_of
from training.mlflow.gate import COMPARED, TITLES, Check, Decision


def explained(decision: Decision) -> Iterator[str]:
    """Yield what was compared and how, each condition, and what would change a decision that could not be made."""
    policy, title = decision.policy, TITLES.get(decision.measure, "the measure")
    points = f"{policy.margin:g} point{'s' * (policy.margin != 1)}"
    yield f"Judged on {decision.documents} documents of {decision.dataset}, split {decision.split}, by {title}."
    for check in decision.checks:
        yield f"  {'met    ' if check.is_passed else 'NOT MET'}  {check.name}: {check.reason}"
    compared = [check for check in decision.checks if check.name in COMPARED and check.measured is not None]
    if compared:
        yield (
            f"A candidate may be at most {points} worse than the champion, and than the best champion "
            "there ever was. Every document is scored with both models. The mean of the differences has an interval; "
            f"all of it must lie above {-policy.margin:g}."
        )
        yield (
            f"This is candidate {decision.attempt} that the best champion meets. Each is another chance for a model "
            f"that is worse, so the interval is of {100 * level_of(policy.level, decision.attempt):.4g}%; the first "
            f"one's is of {100 * level_of(policy.level, 1):.4g}%."
        )
    yield from (_undecided(check, decision) for check in compared if check.is_undecided)
    yield from (f"Candidate minus champion, {each}." for each in decision.differences)


def _undecided(check: Check, decision: Decision) -> str:
    found, margin = check.measured, decision.policy.margin
    assert found is not None
    text = (
        f"There are too few documents to show whether it keeps up with the {check.name}: it may be {-found.low:.2f} "
        f"points worse, and {found.high:.2f} better."
    )
    if check.documents_needed:
        text += (
            f" Of two models that are as good, {check.documents_needed} documents would show in four of five cases "
            f"that one is at most {margin:g} worse."
        )
    return f"{text} It is left to a person: multilink approve."
