"""What two evaluations on the same documents give the promotion rule to compare: one measure, document by document."""

from __future__ import annotations

from schemas.errors import UsageError
from training.evaluation.evaluate import Evaluation
from training.evaluation.links import LinkScore
from training.evaluation.pair_scores import PairScore
from training.registry.policy import Measure
from training.registry.promotion import Contest


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
