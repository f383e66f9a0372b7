"""What other thresholds would drop of a version: `multilink datasets what-if`, before a build runs.

The filters of quality and the rules on documents are applied to the documents of a version, whose pictures are at hand.
What the version left out already does not come back. Examples of each reason are drawn by their ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from pipelines.documents.settle import broken_rule
from pipelines.exports.reading import ShownDocument, shards_of
from pipelines.quality.filters import Problem, document_problem, image_problem
from pipelines.settings import NO_LIMIT, DocumentsConfig, QualityConfig
from pipelines.sources.draws import hashed
from schemas.configs import restore
from schemas.document_rows import from_row
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.overrides import override


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What `--set` changes: the settings of a build that can be tried on a version."""

    documents: DocumentsConfig = field(default_factory=DocumentsConfig)
    quality: QualityConfig = field(default_factory=QualityConfig)

    @classmethod
    def of(cls, manifest: Manifest, settings: Sequence[str]) -> Thresholds:
        """Return the thresholds that a version was built with, with some changed."""
        config = manifest.config
        was = cls(
            documents=restore(DocumentsConfig, config.get("documents", _ANY_DOCUMENT)),
            quality=restore(QualityConfig, config.get("quality", {})),
        )
        return override(was, settings)


_ANY_DOCUMENT = {"min_long_sentences": 0, "min_images": 1, "max_images": NO_LIMIT, "max_sentences": NO_LIMIT}


@dataclass(frozen=True, slots=True)
class Dropped:
    """What becomes of a document: the images it loses, each with why, and why it goes (None: it stays)."""

    document: ShownDocument
    images: Mapping[int, Problem]
    problem: Problem | None

    def reasons(self) -> Iterator[tuple[str, str]]:
        """Yield ("images" or "documents", reason), each once."""
        yield from sorted({("images", str(reason)) for reason, _ in self.images.values()})
        if self.problem is not None:
            yield "documents", str(self.problem[0])


@dataclass(slots=True)
class WhatIf:
    """What thresholds would drop.

    Attributes:
        documents: of each split.
        images: occurrences of each split.
        dropped: (`images` or `documents`, split, reason) -> number.
        examples: (`images` or `documents`, reason) -> some documents.
    """

    documents: Counter[str] = field(default_factory=Counter)
    images: Counter[str] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], list[Dropped]] = field(default_factory=dict)

    def rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield for each split, of documents and of images: how many there are, how many would go, and why."""
        for split, count in self.documents.items():
            for thing, total in (("documents", count), ("images", self.images[split])):
                counted = sorted(self.dropped.items())
                counts = {reason: number for (what, of, reason), number in counted if (what, of) == (thing, split)}
                why = ", ".join(f"{reason} {number}" for reason, number in counts.items())
                yield f"{split}, {thing}", f"{total}", f"{sum(counts.values())}", why

    def to_json(self) -> dict[str, Any]:
        dropped = [
            {"what": what, "split": split, "reason": reason, "count": n}
            for (what, split, reason), n in sorted(self.dropped.items())
        ]
        return {"documents": dict(self.documents), "images": dict(self.images), "dropped": dropped}


def what_if(manifest: Manifest, folder: Folder, thresholds: Thresholds, *, examples: int) -> WhatIf:
    """Return what thresholds would drop of a version, with at most so many examples of each reason."""
    found = WhatIf()
    drawn: dict[tuple[str, str], list[tuple[int, str, Dropped]]] = {}
    for shard in shards_of(manifest):
        for document in shard.read(folder):
            split = document.row["split"]
            found.documents[split] += 1
            found.images[split] += len(document.pictures)
            judged = judge(document, thresholds)
            for reason, _ in judged.images.values():
                found.dropped["images", split, str(reason)] += 1
            if judged.problem is not None:
                found.dropped["documents", split, str(judged.problem[0])] += 1
            for key in judged.reasons():
                draw = (-hashed(0, "what-if", document.row["id"]), document.row["id"], judged)
                heap = drawn.setdefault(key, [])
                heappush(heap, draw)
                if len(heap) > examples:
                    heappop(heap)
    found.examples = {key: [each for *_, each in sorted(heap, reverse=True)] for key, heap in sorted(drawn.items())}
    return found


def judge(document: ShownDocument, thresholds: Thresholds) -> Dropped:
    """Return what thresholds do to a document."""
    quality, rules = thresholds.quality, thresholds.documents
    images = {
        number: problem
        for number, each in enumerate(document.pictures)
        if (problem := image_problem(each["width"], each["height"], each["jpeg"], quality)) is not None
    }
    whole = from_row(document.row)
    left = whole.with_images([number for number in range(len(whole.images)) if number not in images])
    count = len(left.images)
    problem = broken_rule(left.sentences, count, rules)
    problem = problem or document_problem(left.sentences, count, left.language, quality)
    return Dropped(document, images, problem)
