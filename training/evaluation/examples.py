"""Example documents of a report: what one is, and which documents are worth showing.

An `ExampleDocument` is what a reader needs to see of a document: its sentences, small pictures, what the model
linked and what it should have linked. It knows neither the lake nor the model, so that anything which can predict
links can be shown. How one is drawn is in `example_graph.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleDocument:
    """A document with its predicted links; indices count from 0.

    Attributes:
        id: the document's id.
        auc: its AUC in percent; None where links are unknown.
        sentences: its sentences in order.
        images: a JPEG per image in order; None where there is no picture to show.
        predicted: (sentence, image, weight) of each link the model would draw, weight being their cosine.
        links: true (sentence, image) links; None: unknown.
    """

    id: str
    auc: float | None
    sentences: tuple[str, ...]
    images: tuple[bytes | None, ...]
    predicted: tuple[tuple[int, int, float], ...]
    links: tuple[tuple[int, int], ...] | None

    def __post_init__(self) -> None:
        pairs = [(sentence, image) for sentence, image, _ in self.predicted]
        self._check("predicted", pairs)
        self._check("links", self.links or ())

    def _check(self, name: str, pairs: Iterable[tuple[int, int]]) -> None:
        n, m = len(self.sentences), len(self.images)
        for sentence, image in pairs:
            if not (0 <= sentence < n and 0 <= image < m):
                found = f"({sentence}, {image})"
                raise ValueError(f"document {self.id}, {name}: {found} is outside {n} sentences x {m} images")


@dataclass(frozen=True, slots=True)
class ExampleGroup:
    """Documents shown together under one title, such as "Best"."""

    title: str
    documents: tuple[ExampleDocument, ...]


def choose_examples(auc: Mapping[str, float], *, each: int = 1) -> dict[str, tuple[str, ...]]:
    """Return group title -> ids of the best, typical and worst documents by AUC; no id comes twice.

    Typical documents are those in the middle of the ranking, around the median. Ties go by id. Where documents are
    few, the best are chosen first and the typical last; empty groups are left out.
    """
    ranked = sorted(auc, key=lambda document: (-auc[document], document))
    middle = max(0, (len(ranked) - each) // 2)
    wanted = {"Best": ranked[:each], "Worst": ranked[::-1][:each], "Typical": ranked[middle : middle + each]}
    taken: set[str] = set()
    chosen: dict[str, tuple[str, ...]] = {}
    for title, documents in wanted.items():
        chosen[title] = tuple(document for document in documents if document not in taken)
        taken.update(documents)
    return {title: chosen[title] for title in ("Best", "Typical", "Worst") if chosen[title]}
