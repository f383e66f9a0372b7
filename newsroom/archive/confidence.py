"""How sure the result of a search is: fitted on validation texts that were searched for in the index itself.

How likely the best of a million pictures is right has nothing to do with how likely a link inside a document is: the
larger an archive, the more wrong pictures are as near as the right one. So each index has its own numbers, made when
the index is: every validation text with known links is searched for among all pictures. They hold for an index of that
size and for texts like those: sentences of the data set, searched by similarity alone, without a filter.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from newsroom.archive.filters import WORDS
from newsroom.archive.records import Records
from newsroom.archive.vectors import RERANKED, Vectors, fused
from schemas.configs import JsonFile
from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.parts import sampled
from training.data.ragged import Bool, Floats
from training.evaluation.evaluate import POOL_DOCUMENTS, has_links
from training.metrics.curves import ProbabilityCurve, fit_curve
from training.model import LinkModel
from training.shards import embed_split

FIRST = 10  # pictures of a result
ORDERS = ("visual", "lexical", "fused")
MOST_QUERIES = 2_000  # that are searched for
STRENGTHS = (1 / 3, 2 / 3)  # of known texts: from these shares on a picture is fair, and strong
FEWEST_DOCUMENTS = 20  # whose texts are needed


Strength = Literal["weak", "fair", "strong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence(JsonFile):
    """Probabilities of a search result.

    Attributes:
        texts: NAME@VERSION and split that the texts are of.
        images: pictures of the index.
        queries: texts that were searched for.
        found: of these, those with a right picture among the first ten.
        any_of_first: probability that one of the first ten pictures is right, by the highest cosine.
        pictures: probability that one of the first ten is right, by its own cosine.
        reciprocal_ranks: mean of the texts by each order of pictures, 0 to 1. Words are those of titles and captions
            by file or archive, never the captions that articles have for a picture: those are among the texts.
    """

    what: ClassVar[str] = "probabilities of a search"
    texts: str
    images: int
    queries: int
    found: int
    any_of_first: ProbabilityCurve
    pictures: ProbabilityCurve
    reciprocal_ranks: Mapping[str, float] = field(default_factory=dict)

    @property
    def rank_by(self) -> str:
        """Return the order that finds the texts' pictures best; of equal ones the first of ORDERS."""
        return max(ORDERS, key=lambda order: self.reciprocal_ranks.get(order, 0.0))

    def strengths(self, cosines: Floats) -> list[Strength]:
        """Return a word for each picture: how often known texts had the right one where their nearest was as near.

        It says whether text and picture go together. How likely a picture is the only right one is another question:
        of ten pictures of tractors, each is so with 10% at most.

        Args:
            cosines: of pictures with a text.
        """
        words: tuple[Strength, ...] = ("weak", "fair", "strong")
        return [words[step] for step in np.digitize(self.any_of_first.probability(cosines), STRENGTHS).tolist()]

    def lines(self) -> list[str]:
        """Return what it was fitted on."""
        return [
            f"of {self.queries} texts of {self.texts}, {self.found} have a right picture among the first {FIRST} of "
            f"{self.images}: results have a probability",
            "mean reciprocal rank of these texts: "
            + ", ".join(f"{order} {100 * self.reciprocal_ranks[order]:.1f}" for order in ORDERS),
        ]


def fit_confidence(
    model: LinkModel, manifest: Manifest, source: Folder, records: Records, vectors: Vectors
) -> Confidence | None:
    """Return the probabilities of results of an index; None without validation texts whose pictures are known.

    Args:
        model: of the index.
        manifest: of the data set version.
        source: its folder.
        records: pictures of the index.
        vectors: theirs.
    """
    if not manifest.parts("documents", Split.VAL):
        return None
    searches = list(_searches(model, sampled(manifest, POOL_DOCUMENTS), source, records, vectors))
    if len({number for number, *_ in searches}) < FEWEST_DOCUMENTS:
        return None
    _, cosines, are_right, reciprocal = zip(*searches, strict=True)
    are_found, best = np.array([each.any() for each in are_right]), np.array([each[0] for each in cosines])
    return Confidence(
        texts=f"{manifest.reference}, split {Split.VAL}",
        images=records.count,
        queries=len(searches),
        found=int(are_found.sum()),
        any_of_first=fit_curve(best, are_found),
        pictures=fit_curve(np.concatenate(cosines), np.concatenate(are_right)),
        reciprocal_ranks={by: round(float(np.mean([each[by] for each in reciprocal])), 4) for by in ORDERS},
    )


def _searches(
    model: LinkModel, manifest: Manifest, source: Folder, records: Records, vectors: Vectors
) -> Iterator[tuple[int, Floats, Bool, Mapping[str, float]]]:
    """Yield what was found for each validation text whose pictures are known.

    The number of its document, the cosines of the first pictures, which of them it is linked to, and by each order the
    reciprocal rank of the first picture that it is linked to; 0 beyond RERANKED.
    """
    documents, embedded = embed_split(model, manifest, source, Split.VAL)
    if not has_links(documents):
        return
    known = [(number, links) for number, links in enumerate(documents.links or ()) if links is not None and len(links)]
    linked = [(number, row, links) for number, links in known for row in np.unique(links[:, 0]).tolist()]
    for number, row, links in linked[:: max(1, len(linked) // MOST_QUERIES)]:
        images = documents.image_rows[documents.images.rows(number)][links[links[:, 0] == row, 1]]
        right = records.rows_named([documents.image_hashes[image] for image in images])
        visual = vectors.nearest(embedded[number].texts[row], RERANKED)
        place = int(np.arange(len(documents.texts))[documents.sentences.rows(number)][row])
        text = documents.texts[place] if documents.sources is None else " ".join(documents.sources[place])
        lexical = records.words.rank(text, RERANKED, fields=WORDS)
        orders = zip(ORDERS, (visual, lexical, fused(visual, lexical)), strict=True)
        reciprocal = {by: 1 / ranking.rank_of_first(right) for by, ranking in orders}
        yield number, visual.scores[:FIRST], np.isin(visual.rows[:FIRST], right), reciprocal
