"""Documents with the links that they came with and those that a model predicts, and how far both agree.

A corpus that was linked by another model (MMC4 by CLIP) keeps what it was given. Agreement does not show which
of both is right; where ground truth is known, both are compared with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from heapq import nsmallest
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.documents import GIVEN_LINKS
from schemas.lake import Folder
from schemas.links import PREDICTED_LINKS, RELINKED_SCHEMA, PredictedLink

Pairs = frozenset[tuple[int, int]]  # sentence, image
_COMPARED = ("id", "links", GIVEN_LINKS, PREDICTED_LINKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far given and predicted links agree, in documents that came with links and could be linked.

    Attributes:
        documents: those documents.
        given: links that they came with.
        predicted: links that the model predicts.
        same: links that are both.
        images: images that both link.
        same_sentence: of those, the ones that both link to the same sentence.
        judged: those of the documents whose true links are known.
        true: their true links.
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
            "given_recall": _share(self.true_given, self.true),
            "predicted_precision": _share(self.true_predicted, self.judged_predicted),
            "predicted_recall": _share(self.true_predicted, self.true),
        }
        return asdict(self) | shares


@dataclass(frozen=True, slots=True)
class Relinked:
    """Given and predicted links of some documents, compared.

    Attributes:
        agreement: of all.
        differing: (key of a random order, path, row) of the first in which both differ.
    """

    agreement: Agreement
    differing: tuple[tuple[str, str, Mapping[str, Any]], ...]


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


def compare(folder: Folder, paths: Iterable[str], *, examples: int) -> Relinked:
    """Compare the links of documents, a file of them at a time.

    Args:
        folder: of a relinking.
        paths: of its documents.
        examples: how many of those in which both differ are returned: a random sample that is the same each time.
    """
    agreement, differing = Agreement(), list[tuple[str, str, Mapping[str, Any]]]()
    for path in paths:
        with folder.open(path) as stream:
            rows = pq.read_table(stream, columns=list(_COMPARED)).to_pylist()
        for row in rows:
            if row[GIVEN_LINKS] is None or row[PREDICTED_LINKS] is None:
                continue
            agreement += agreement_of(row)
            if _pairs(row[GIVEN_LINKS]) != _pairs(row[PREDICTED_LINKS]):
                key = hashlib.sha256(row["id"].encode()).hexdigest()
                differing.append((key, path, row))
        differing = nsmallest(examples, differing, key=lambda each: each[:2])
    return Relinked(agreement, tuple(differing))


def agreement_of(row: Mapping[str, Any]) -> Agreement:
    """Return how far the links of one document agree."""
    given, predicted = _pairs(row[GIVEN_LINKS]), _pairs(row[PREDICTED_LINKS])
    of_given, of_predicted = ({image: text for text, image in pairs} for pairs in (given, predicted))
    both = of_given.keys() & of_predicted.keys()
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
        judged_given=len(given),
        true_given=len(given & true),
        judged_predicted=len(predicted),
        true_predicted=len(predicted & true),
    )


def _pairs(links: Iterable[Mapping[str, Any]]) -> Pairs:
    return frozenset((link["sentence"], link["image"]) for link in links)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
