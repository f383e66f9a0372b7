"""Documents with the links that they came with and those that a model predicts, and how far both agree.

A corpus that was linked by another model (MMC4 by CLIP) keeps what it was given. Agreement does not show which
of both is right; where ground truth is known, both are compared with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import starmap
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.documents import GIVEN_LINKS
from schemas.lake import Folder
from schemas.messages import aligned
from training.linking.records import PREDICTED_LINKS, RELINKED_SCHEMA, PredictedLink

Pairs = frozenset[tuple[int, int]]  # sentence, image
_COMPARED = ("id", "links", GIVEN_LINKS, PREDICTED_LINKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far given and predicted links agree, and how many are true, in documents that could be linked.

    Attributes:
        documents: those that came with links.
        given: links that they came with.
        predicted: links that the model predicts.
        same: links that are both.
        images: images that both link.
        same_sentence: of those, the ones that both link to the same sentence.
        judged: documents whose true links are known.
        true: their true links.
        true_where_given: those of documents that came with links.
        judged_given: given links of them.
        true_given: of those, the true ones.
        judged_predicted: predicted links of them.
        true_predicted: of those, the true ones.
    """

    documents: int = 0
    given: int = 0
    predicted: int = 0
    same: int = 0
    images: int = 0
    same_sentence: int = 0
    judged: int = 0
    true: int = 0
    true_where_given: int = 0
    judged_given: int = 0
    true_given: int = 0
    judged_predicted: int = 0
    true_predicted: int = 0

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    def to_json(self) -> dict[str, float | int | None]:
        """Return the counts, and shares from 0 to 1; null of nothing."""
        shares = {
            "agreement": _share(self.same_sentence, self.images),
            "given_precision": _share(self.true_given, self.judged_given),
            "given_recall": _share(self.true_given, self.true_where_given),
            "predicted_precision": _share(self.true_predicted, self.judged_predicted),
            "predicted_recall": _share(self.true_predicted, self.true),
        }
        return asdict(self) | shares

    def lines(self) -> list[str]:
        """Return the agreement as aligned text."""
        if not self.documents and not self.judged:
            return ["no document came with links: nothing to compare"]
        rows: list[tuple[str, ...]] = [(f"{self.documents:,} documents that came with links", "given", "predicted")]
        if self.documents:
            rows.append(("links", f"{self.given:,}", f"{self.predicted:,}"))
            same = _percent(self.same, self.given), _percent(self.same, self.predicted)
            rows.append(("of them also the other's", *same))
        if self.judged:
            precision = (self.true_given, self.judged_given), (self.true_predicted, self.judged_predicted)
            recall = (self.true_given, self.true_where_given), (self.true_predicted, self.true)
            title = f"of {self.judged:,} documents whose true links are known: precision"
            rows += [(title, *starmap(_percent, precision)), ("recall", *starmap(_percent, recall))]
        return aligned(rows)


def relinked_table(part: pa.Table, links: Mapping[str, Sequence[PredictedLink]]) -> pa.Table:
    """Return the documents of a part with their predicted links.

    Args:
        part: columns of `schemas.documents.document_schema`; those that an older part lacks are null.
        links: of each document that was linked.
    """
    names = [field.name for field in RELINKED_SCHEMA.field(PREDICTED_LINKS).type.value_type]
    values = attrgetter(*names)
    predicted = [
        None if key not in links else [dict(zip(names, values(link), strict=True)) for link in links[key]]
        for key in part.column("id").to_pylist()
    ]
    nulls = {field.name: pa.nulls(part.num_rows, field.type) for field in RELINKED_SCHEMA}
    columns = nulls | {name: part.column(name) for name in part.column_names if name in nulls}
    columns[PREDICTED_LINKS] = pa.array(predicted, nulls[PREDICTED_LINKS].type)
    return pa.table([columns[name] for name in RELINKED_SCHEMA.names], schema=RELINKED_SCHEMA)


def compare(folder: Folder, paths: Iterable[str]) -> Agreement:
    """Return how far the links of documents agree, read from some files of a relinking, one at a time."""
    agreement = Agreement()
    for path in paths:
        with folder.open(path) as stream:
            rows = pq.read_table(stream, columns=list(_COMPARED)).to_pylist()
        linked = (row for row in rows if row[PREDICTED_LINKS] is not None)
        agreement = sum(map(agreement_of, linked), start=agreement)
    return agreement


def caution_line(trained_on: str, dataset: str) -> str:
    """Return what to know of the probabilities that a model gives in a data set.

    Args:
        trained_on: NAME@VERSION of the model's data.
        dataset: NAME@VERSION of what was linked.
    """
    if trained_on.partition("@")[0] == dataset.partition("@")[0]:
        return (
            f"the model was trained on {trained_on}: its probabilities hold for val and test, and are too high "
            "for documents of its training split"
        )
    return (
        f"the model was trained on {trained_on}, where its probabilities were fitted; they do not hold for {dataset}, "
        "whose links have a word instead: strong, fair or weak"
    )


def agreement_of(row: Mapping[str, Any]) -> Agreement:
    """Return how far the links of one document agree."""
    given, predicted = _pairs(row[GIVEN_LINKS] or ()), _pairs(row[PREDICTED_LINKS])
    of_given, of_predicted = ({image: text for text, image in pairs} for pairs in (given, predicted))
    both = of_given.keys() & of_predicted.keys()
    agreement = Agreement()
    if row[GIVEN_LINKS] is not None:
        agreement = Agreement(
            documents=1,
            given=len(given),
            predicted=len(predicted),
            same=len(given & predicted),
            images=len(both),
            same_sentence=sum((of_predicted[image], image) in given for image in both),
        )
    if row["links"] is None:
        return agreement
    true = _pairs(row["links"])
    return agreement + Agreement(
        judged=1,
        true=len(true),
        true_where_given=len(true) * agreement.documents,
        judged_given=len(given),
        true_given=len(given & true),
        judged_predicted=len(predicted),
        true_predicted=len(predicted & true),
    )


def _pairs(links: Iterable[Mapping[str, Any]]) -> Pairs:
    return frozenset((link["sentence"], link["image"]) for link in links)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"
