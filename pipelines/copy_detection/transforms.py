"""Copy detection in Beam: vectors of all images meet on one worker, which finds copies; documents go by the policy.

    documents with features -> images, packed -> all -> copies -> rows, documents to drop
        `------------------------------------------------------------------------> documents that stay

Where vectors are travels, not the vectors. What is not bounded: one worker holds the vectors of all images, 2 KB each
for 512 dimensions; `dedupe` before it left out what hashes see.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from pipelines.copy_detection.near_copies import NearCopies, Shown, find_near_copies, near_copy_rows, pack_shown
from pipelines.dedupe.duplicates import mark_dropped
from pipelines.dedupe.transforms import Pack
from pipelines.documents.transforms import LeaveOut
from pipelines.features.extraction import FeaturePlan
from pipelines.features.values import IMAGES, feature_array
from pipelines.settings import CopyDetectionConfig, Policy
from schemas.failures import Failure, Reason, Stage
from schemas.features import column_to_vectors

ROWS, DROPPED, COUNTS = "rows", "dropped", "counts"


class Detected(NamedTuple):
    """Documents that stay, rows of near copies, failures of the documents that go, and counts for the manifest."""

    documents: beam.PCollection
    rows: beam.PCollection
    failures: beam.PCollection
    counts: beam.PCollection


@dataclass(eq=False)
class DetectCopies(beam.PTransform):
    """Finds copies by vectors among documents with features, and does what the policy says: gives `Detected`.

    Attributes:
        config: which extractor, from which cosine on, and what becomes of documents; no extractor: nothing is done.
        plan: of the features.
    """

    config: CopyDetectionConfig
    plan: FeaturePlan

    def expand(self, documents: beam.PCollection) -> Detected:
        if not self.config.extractor:
            none = documents.pipeline | "none" >> beam.Create([])
            return Detected(documents, none, none, none)
        shown = documents | "pack" >> Pack(partial(pack_shown, column=self._column))
        all_shown = shown | "all" >> beam.combiners.ToList() | "in one" >> beam.Map(Shown.concatenate)
        found = all_shown | "find" >> beam.FlatMap(self._find).with_outputs(DROPPED, COUNTS, main=ROWS)
        if self.config.policy is Policy.KEEP_ALL:
            failures = documents.pipeline | "none dropped" >> beam.Create([])
            return Detected(documents, found[ROWS], failures, found[COUNTS])
        kept = (documents, found[DROPPED]) | "keep" >> LeaveOut()
        return Detected(kept, found[ROWS], found[DROPPED] | "failures" >> beam.Map(_failure), found[COUNTS])

    @property
    def _column(self) -> int:
        """Return the number of the extractor's column among the computed ones."""
        return [column.name for column in self.plan.extracted(IMAGES)].index(self.config.extractor)

    def _find(self, shown: Shown) -> Iterator[Any]:
        once, _ = shown.once()
        column = self.plan.extracted(IMAGES)[self._column]
        vectors = column_to_vectors(feature_array(self.plan.lake, column, IMAGES, once.refs()))
        found = find_near_copies(shown, vectors, self.config.cosine)
        is_dropped = mark_dropped(found, self.config.policy)
        for document in sorted(set(found.documents[is_dropped].tolist())):
            yield TaggedOutput(DROPPED, document)
        yield TaggedOutput(COUNTS, _counts(found))
        yield from near_copy_rows(found, is_dropped.tolist())


def _counts(found: NearCopies) -> dict[str, Any]:
    worst = float(found.worst.min()) if len(found) else None
    return {"clusters": len(set(found.clusters.tolist())), "images": len(set(found.images.tolist())), "worst": worst}


def _failure(document_id: str) -> Failure:
    message = "an image of it is a copy of another, by its vector; see the table of near copies"
    return Failure(Stage.COPY_DETECTION, document_id, Reason.DUPLICATE_IMAGE, message)
