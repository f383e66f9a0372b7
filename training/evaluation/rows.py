"""The table of an evaluation: every number that was measured as a row of `schemas.evaluation`."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pyarrow.parquet as pq

from schemas.errors import NotFoundError
from schemas.evaluation import EVALUATION_SCHEMA, EvaluationRow
from schemas.tables import check_schema, row_of, to_table
from training.evaluation.beside import Beside
from training.evaluation.bootstrap import Interval
from training.evaluation.calibration import CalibrationJudgement
from training.evaluation.evaluate import Evaluation, MeanScores
from training.evaluation.measures import Measures
from training.evaluation.pair_scores import PairMeans, PairScores
from training.evaluation.retrieval import RetrievalScores
from training.evaluation.score_kinds import ScoreKind

FILE_NAME = "evaluation.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """What was evaluated on what, and every number of it.

    Attributes:
        model: registered name, or the address it was loaded from.
        model_version: registered version, where there is one.
        dataset: name of the data set.
        dataset_version: its version.
        split: split of it.
        rows: all numbers.
    """

    model: str
    model_version: str | None
    dataset: str
    dataset_version: str
    split: str
    rows: tuple[EvaluationRow, ...]

    def write(self, directory: Path) -> Path:
        """Write the table into a folder, made if missing, and return its path."""
        buffer = io.BytesIO()
        pq.write_table(to_table(map(row_of, self.rows), EVALUATION_SCHEMA), buffer, compression="zstd")
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / FILE_NAME
        partial = directory / f"{FILE_NAME}.partial"
        partial.write_bytes(buffer.getvalue())
        partial.replace(path)
        return path

    def values(self) -> dict[str, float]:
        """Return `measure metric group` -> value of the numbers that have one, but for those of single documents."""
        return {
            " ".join(filter(None, (row.measure, row.metric, row.group))): row.value
            for row in self.rows
            if row.value is not None and row.measure != "document"
        }


def evaluation_report(
    evaluation: Evaluation,
    measures: Measures,
    beside: Beside | None = None,
    *,
    model: str,
    model_version: str | None,
    dataset: str,
    dataset_version: str,
    split: str,
) -> EvaluationReport:
    """Return the table of an evaluation, of what else was measured, and of the baselines beside it."""
    blank = EvaluationRow(
        model=model,
        model_version=model_version,
        dataset=dataset,
        dataset_version=dataset_version,
        split=split,
        measure="",
        metric="",
    )
    return EvaluationReport(
        model=model,
        model_version=model_version,
        dataset=dataset,
        dataset_version=dataset_version,
        split=split,
        rows=(*_rows(blank, evaluation, measures), *_beside(blank, evaluation, beside or Beside())),
    )


def read_evaluation(path: Path) -> tuple[EvaluationRow, ...]:
    """Return the rows of a table that `EvaluationReport.write` wrote.

    Raises:
        NotFoundError: there is no such file.
        IntegrityError: it is another table.
    """
    if not path.is_file():
        raise NotFoundError(f"{path}: no such evaluation table")
    table = pq.read_table(path)
    check_schema(table.schema, EVALUATION_SCHEMA, where=str(path))
    names = [field.name for field in fields(EvaluationRow)]
    return tuple(EvaluationRow(**row) for row in table.select(names).to_pylist())


def _rows(blank: EvaluationRow, evaluation: Evaluation, measures: Measures) -> Iterator[EvaluationRow]:
    scored = len(evaluation.scored)
    if evaluation.link_means is not None:
        yield from _means(replace(blank, measure="links", n=scored), evaluation.link_means)
    if evaluation.random_means is not None:
        yield from _means(replace(blank, measure="random", n=scored), evaluation.random_means)
    if evaluation.pairs is not None:
        yield from _pairs(replace(blank, n=len(evaluation.pairs.documents)), evaluation.pairs)
    for reason, count in evaluation.left_out.items():
        yield replace(
            blank, measure="links", metric="left_out", group=reason, value=float(count), n=count, unit="documents"
        )
    for group in measures.groups:
        means = MeanScores(group.auc, group.precision_at_1, group.precision_at_5)
        yield from _means(replace(blank, measure="links", group=f"{group.kind}={group.name}", n=group.documents), means)
    for measure, scores in (("retrieval", measures.retrieval), ("refined retrieval", measures.refined)):
        for row in scores:
            yield from _retrieval(replace(blank, measure=measure), row)
    for part in measures.retrieval_groups:
        yield from _retrieval(replace(blank, measure="retrieval", group=f"{part.kind}={part.name}, "), part.scores)
    yield from _relations(replace(blank, measure="relations"), measures)
    yield from _analysis(replace(blank, measure="analysis"), measures)
    if measures.calibration is not None:
        yield from _calibration(replace(blank, measure="calibration"), measures.calibration)
    yield from _confusion(replace(blank, measure="confusion"), measures)
    yield from _captions(replace(blank, measure="captions"), measures)
    for measure, reason in measures.absent.items():
        yield replace(blank, measure=measure, metric="absent", unit="", note=reason)
    yield from _documents(replace(blank, measure="document", n=1), evaluation)


def _beside(blank: EvaluationRow, evaluation: Evaluation, beside: Beside) -> Iterator[EvaluationRow]:
    """Yield each baseline's means, or why it has none."""
    documents = len(evaluation.scored or (() if evaluation.pairs is None else evaluation.pairs.documents))
    for found in beside.scores:
        yield from _means(replace(blank, measure=found.name, note=found.note, n=documents), found.means)
    for name, reason in beside.absent.items():
        yield replace(blank, measure=name, metric="absent", unit="", note=reason)


def _means(blank: EvaluationRow, means: MeanScores | PairMeans) -> Iterator[EvaluationRow]:
    for metric, interval in _intervals(means):
        yield _with_interval(replace(blank, metric=metric), interval)


def _pairs(blank: EvaluationRow, pairs: PairScores) -> Iterator[EvaluationRow]:
    """Yield the means over documents, and what a random order is expected to score."""
    candidates = f"text to image, whole pool of {pairs.candidates}"
    yield from _means(replace(blank, measure="pairs", group=candidates), pairs.means())
    for metric in ScoreKind.PAIRS.metrics:
        value = getattr(pairs.chance, metric)
        yield replace(blank, measure="random", metric=metric, group=candidates, value=value, note="expected")


def _retrieval(blank: EvaluationRow, scores: RetrievalScores) -> Iterator[EvaluationRow]:
    pool = f"{scores.samples} samples of" if scores.samples else "whole pool of"
    named = replace(blank, group=f"{blank.group}{scores.direction}, {pool} {scores.candidates:.0f}", n=scores.queries)
    for cutoff, found in scores.recall.items():
        yield replace(
            named,
            metric=f"recall_at_{cutoff}",
            value=found.value,
            low=found.low,
            high=found.high,
            deviation=found.deviation,
        )
    rank = scores.median_rank
    yield replace(
        named,
        metric="median_rank",
        value=rank.value,
        low=rank.low,
        high=rank.high,
        deviation=rank.deviation,
        unit="rank, from 1",
    )


def _relations(blank: EvaluationRow, measures: Measures) -> Iterator[EvaluationRow]:
    for score in measures.relations:
        named = replace(blank, group=score.name, n=score.pairs)
        yield replace(named, metric="average_precision", value=score.average_precision, low=score.low, high=score.high)
        yield replace(named, metric="rate", value=score.rate)


def _analysis(blank: EvaluationRow, measures: Measures) -> Iterator[EvaluationRow]:
    if measures.analysis is None:
        return
    note = f"images: {measures.analysis.image_vectors}; sentences: {measures.analysis.text_vectors}"
    for fit in measures.analysis.regressions:
        named = replace(blank, group=fit.name, n=fit.documents, note=note)
        yield replace(named, metric="r_squared", value=100 * fit.r_squared)
        yield replace(named, metric="adjusted_r_squared", value=100 * fit.adjusted_r_squared)
        f = fit.f if fit.f < float("inf") else None
        yield replace(named, metric="f", value=f, unit=f"F of {fit.predictors} predictors")
        yield replace(named, metric="p", value=fit.p, unit="probability")


def _calibration(blank: EvaluationRow, judged: CalibrationJudgement) -> Iterator[EvaluationRow]:
    fitted = judged.calibration
    named = replace(blank, n=judged.links, note=f"{fitted.method}, {fitted.links} links of {fitted.split}")
    yield replace(named, metric="brier", value=judged.brier, unit="squared probability")
    yield replace(named, metric="expected_calibration_error", value=judged.error)
    for kept in judged.kept:
        wanted = replace(named, group=f"precision {kept.wanted:.0%}", n=kept.links)
        yield replace(wanted, metric="threshold", value=kept.threshold, unit="cosine")
        yield replace(wanted, metric="kept", value=kept.kept)
        if kept.precision is not None:
            yield _with_interval(replace(wanted, metric="precision"), kept.precision)


def _confusion(blank: EvaluationRow, measures: Measures) -> Iterator[EvaluationRow]:
    for group in measures.confusion:
        named = replace(blank, group=f"nearness {group.low:.3f} to {group.high:.3f}", n=group.sentences)
        for metric in ("right", "confused", "elsewhere", "chance"):
            yield replace(named, metric=metric, value=getattr(group, metric))


def _captions(blank: EvaluationRow, measures: Measures) -> Iterator[EvaluationRow]:
    if measures.captions is None:
        return
    named = replace(blank, n=measures.captions.images, unit="score times 100")
    for metric, value in measures.captions.values.items():
        yield replace(named, metric=metric, value=value, note=measures.captions.signature if "BLEU" in metric else "")
    for metric, reason in measures.captions.absent.items():
        yield replace(named, metric=metric, note=reason)


def _documents(blank: EvaluationRow, evaluation: Evaluation) -> Iterable[EvaluationRow]:
    for place, score in zip(evaluation.scored, evaluation.scores, strict=True):
        for metric in ScoreKind.LINKS.metrics:
            yield replace(blank, metric=metric, group=evaluation.ids[place], value=getattr(score, metric))
    if evaluation.pairs is not None:
        for place, found in zip(evaluation.pairs.documents, evaluation.pairs.scores, strict=True):
            for metric in ScoreKind.PAIRS.metrics:
                yield replace(blank, metric=metric, group=evaluation.ids[place], value=getattr(found, metric))


def _intervals(means: MeanScores | PairMeans) -> Iterator[tuple[str, Interval]]:
    for item in fields(means):
        yield item.name, getattr(means, item.name)


def _with_interval(blank: EvaluationRow, interval: Interval) -> EvaluationRow:
    return replace(blank, value=interval.mean, low=interval.low, high=interval.high)
