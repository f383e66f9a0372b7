"""An evaluation becomes what a report says: the rows of its score table, and its documents worth looking at.

Reading the sentences and pictures of the few documents that are drawn is all the input there is; how a page looks is
`report.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.configs import resolve
from schemas.documents import Split
from schemas.lake import Folder, Lake
from schemas.manifest import FileEntry, Manifest, read_manifest
from training.data.lake import read_part, split_parts
from training.evaluation.bootstrap import Interval
from training.evaluation.evaluate import FULLY_LINKED, Evaluation, MeanScores
from training.evaluation.examples import ExampleDocument, ExampleGroup, choose_examples
from training.evaluation.facts import read_pictures
from training.evaluation.measures import Measures
from training.evaluation.pair_scores import PairMeans
from training.evaluation.report_content import Heading, ReportContent, RowKind, Score, ScoreRow
from training.linking.links import predicted_links
from training.model import LinkModel

EXAMPLES_EACH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """What a report says of a model beside its card.

    Attributes:
        name: registered name, or the address it was loaded from.
        version: registered version; empty for a model that is not registered.
        history: metrics of each epoch.
    """

    name: str
    version: str = ""
    history: Sequence[Mapping[str, float]] = ()


def score_row(name: str, scores: MeanScores | PairMeans, *, kind: RowKind, note: str = "") -> ScoreRow:
    """Return one row of the score table."""
    by_metric = {item.name: _score(getattr(scores, item.name)) for item in fields(scores)}
    return ScoreRow(name=name, scores=by_metric, kind=kind, note=note)


def report_content(
    evaluation: Evaluation,
    model: LinkModel,
    description: ModelDescription,
    *,
    lake: Lake,
    reference: str,
    split: Split | str = Split.TEST,
    baselines: Sequence[ScoreRow] = (),
    absent_baselines: Mapping[str, str] = MappingProxyType({}),
    measures: Measures | None = None,
) -> ReportContent:
    """Return the report of an evaluation of a model on a split of `NAME[@VERSION]`.

    Args:
        baselines: rows of other models on the same documents; random's is always there.
        absent_baselines: baselines without a row, and why.
        measures: what else was measured.
    """
    manifest, folder = read_manifest(lake, reference)
    config = model.card.config
    pairs = None if evaluation.scores else evaluation.pairs
    shown = [key for pair in (measures.confused if measures else ()) for key in (pair.image, pair.chosen)]
    heading = Heading(
        model=description.name,
        model_version=description.version,
        dataset=manifest.dataset,
        dataset_version=manifest.version,
        split=str(split),
        documents=len(evaluation.scored if pairs is None else pairs.documents),
        left_out={reason: n for reason, n in evaluation.left_out.items() if pairs is None or reason != FULLY_LINKED},
        recipe=config.recipe,
        objective=config.objective.name,
        similarity=config.objective.similarity,
        epochs=len(description.history) or config.training.epochs,
        kept_epoch=model.card.epoch,
        select=config.training.select,
        candidates=None if pairs is None else pairs.candidates,
        reads_links=config.objective.reads_links,
    )
    return ReportContent(
        heading=heading,
        scores=_rows_of(evaluation, description.name, baselines),
        absent_baselines=absent_baselines,
        history=tuple(description.history),
        document_auc=tuple(evaluation.document_auc.values()),
        examples=example_groups(evaluation, manifest, folder, split),
        statistics=manifest.splits,
        config=resolve(config),
        measures=measures,
        pictures=read_pictures(manifest, folder, split, shown),
    )


def _rows_of(evaluation: Evaluation, name: str, baselines: Sequence[ScoreRow]) -> tuple[ScoreRow, ...]:
    """Return the row of the evaluated model, those of other models, and random's."""
    if evaluation.link_means is not None:
        chance = score_row("random", evaluation.random, kind=RowKind.BASELINE)
        return score_row(name, evaluation.mean, kind=RowKind.MODEL), *baselines, chance
    if evaluation.pairs is not None:
        expected = {metric: Score(value) for metric, value in asdict(evaluation.pairs.chance).items()}
        chance = ScoreRow(name="random", scores=expected, kind=RowKind.BASELINE, note="expected")
        return score_row(name, evaluation.pairs.means(), kind=RowKind.MODEL), *baselines, chance
    return tuple(baselines)


def example_groups(
    evaluation: Evaluation, manifest: Manifest, folder: Folder, split: Split | str, *, each: int = EXAMPLES_EACH
) -> tuple[ExampleGroup, ...]:
    """Return the best, typical and worst documents with their pictures, predicted and true links."""
    chosen = choose_examples(evaluation.document_auc, each=each)
    wanted = {document for ids in chosen.values() for document in ids}
    shown = dict(_read_examples(evaluation, manifest, folder, split, wanted))
    return tuple(
        ExampleGroup(title, tuple(shown[document] for document in documents)) for title, documents in chosen.items()
    )


def _read_examples(
    evaluation: Evaluation, manifest: Manifest, folder: Folder, split: Split | str, wanted: set[str]
) -> Iterable[tuple[str, ExampleDocument]]:
    places = {document: place for place, document in enumerate(evaluation.ids)}
    for documents_part, images_part in split_parts(manifest, split):
        rows = _rows(folder, documents_part, ["id", "sentences", "images"], "id", wanted)
        hashes = {image["hash"] for row in rows for image in row["images"]}
        found = _rows(folder, images_part, ["hash", "jpeg"], "hash", hashes)
        pictures = {image["hash"]: image["jpeg"] for image in found}
        for row in rows:
            yield row["id"], _example(evaluation, places[row["id"]], row, pictures)


def _rows(folder: Folder, part: FileEntry, columns: list[str], key: str, wanted: set[str]) -> list[dict[str, Any]]:
    """Return the wanted rows of a part; nothing is read where nothing is wanted."""
    if not wanted:
        return []
    table = read_part(folder, part, columns)
    is_wanted = pc.is_in(table.column(key), value_set=pa.array(sorted(wanted), pa.string()))
    rows: list[dict[str, Any]] = table.filter(is_wanted).to_pylist()
    return rows


def _example(
    evaluation: Evaluation, place: int, row: Mapping[str, Any], pictures: Mapping[str, bytes | None]
) -> ExampleDocument:
    known, numbers = evaluation.links[place], evaluation.sentence_numbers[place]
    predicted = predicted_links(row["id"], evaluation.matrices[place], numbers)
    return ExampleDocument(
        id=row["id"],
        auc=evaluation.document_auc.get(row["id"]),
        sentences=tuple(sentence["text"] for sentence in row["sentences"]),
        images=tuple(pictures[image["hash"]] for image in row["images"]),
        predicted=tuple((edge.sentence, edge.image, edge.similarity) for edge in predicted),
        links=None if known is None else tuple((int(numbers[s]), int(i)) for s, i in known),
    )


def _score(interval: Interval) -> Score:
    return Score(interval.mean, interval.low, interval.high)
