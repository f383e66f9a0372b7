"""How sure the result of a search is: fitted on validation texts that were searched for in the index itself.

How likely the best of a million pictures is right has nothing to do with how likely a link inside a document is: the
larger an archive, the more wrong pictures are as near as the right one. So each index has its own numbers, made when
the index is: every validation text with known links is searched for among all pictures. They hold for an index of that
size and for texts like those: sentences of the data set, searched by similarity alone, without a filter.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from schemas.configs import restore_json
from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.parts import sampled
from training.data.ragged import Bool, Floats, Int64
from training.evaluation.evaluate import POOL_DOCUMENTS, has_links
from training.metrics.calibration import Calibration, Observations, fit_calibration
from training.model import LinkModel
from training.retrieval.vectors import Vectors
from training.shards import embed_split

CONFIDENCE = "confidence.json"
FIRST = 10  # pictures of a result
MOST_QUERIES = 2_000  # that are searched for
FEWEST_DOCUMENTS = 20  # whose texts are needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """Probabilities of a search result.

    Attributes:
        images: pictures of the index.
        queries: texts that were searched for.
        found: of these, those with a right picture among the first ten.
        any_of_first: probability that one of the first ten pictures is right, by the highest cosine.
        pictures: probability that one of the first ten is right, by its own cosine.
    """

    images: int
    queries: int
    found: int
    any_of_first: Calibration
    pictures: Calibration
    format: Literal[1] = 1

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    def lines(self) -> list[str]:
        """Return what it was fitted on."""
        source = f"{self.any_of_first.dataset}, split {self.any_of_first.split}"
        return [
            f"of {self.queries} texts of {source}, {self.found} have a right picture among the first {FIRST} of "
            f"{self.images}: results have a probability"
        ]


def read_confidence(path: Path) -> Confidence:
    """Return the confidence of a file.

    Raises:
        IntegrityError: it holds none.
    """
    return restore_json(Confidence, path.read_text(encoding="utf-8"), what=f"probabilities of a search in {path}")


def fit_confidence(
    model: LinkModel, manifest: Manifest, source: Folder, vectors: Vectors, row_of: dict[str, int]
) -> Confidence | None:
    """Return the probabilities of results of an index; None without validation texts whose pictures are known.

    Args:
        model: of the index.
        manifest: of the data set version.
        source: its folder.
        vectors: of the index.
        row_of: content hash -> row of the index.
    """
    if not manifest.parts("documents", Split.VAL):
        return None
    searches = list(_searches(model, sampled(manifest, POOL_DOCUMENTS), source, vectors, row_of))
    documents = np.array([number for number, _, _ in searches])
    if len(np.unique(documents)) < FEWEST_DOCUMENTS:
        return None
    cosines, are_right = (list(column) for column in list(zip(*searches, strict=True))[1:])
    are_found = np.array([own.any() for own in are_right])
    best = np.array([own[0] for own in cosines])
    owners = np.repeat(documents, [len(own) for own in cosines])
    return Confidence(
        images=len(vectors.rows),
        queries=len(searches),
        found=int(are_found.sum()),
        any_of_first=fit_probability(best, are_found, documents, manifest.reference),
        pictures=fit_probability(np.concatenate(cosines), np.concatenate(are_right), owners, manifest.reference),
    )


def _searches(
    model: LinkModel, manifest: Manifest, source: Folder, vectors: Vectors, row_of: dict[str, int]
) -> Iterator[tuple[int, Floats, Bool]]:
    """Yield of validation texts the document, and the cosines of the first pictures and which of these are right."""
    documents, embedded = embed_split(model, manifest, source, Split.VAL)
    if not has_links(documents):
        return
    known = [(number, links) for number, links in enumerate(documents.links or ()) if links is not None and len(links)]
    linked = [(number, row, links) for number, links in known for row in np.unique(links[:, 0]).tolist()]
    for number, row, links in linked[:: max(1, len(linked) // MOST_QUERIES)]:
        images = documents.image_rows[documents.images.rows(number)][links[links[:, 0] == row, 1]]
        right = [row_of[documents.image_hashes[image]] for image in images]
        ranked = vectors.nearest(embedded[number].texts[row], FIRST)
        yield number, ranked.scores, np.isin(ranked.rows, right)


def fit_probability(cosines: Floats, are_right: Bool, documents: Int64, reference: str) -> Calibration:
    """Return the probability of being right by the cosine, of n results of texts of these documents."""
    observed = Observations(cosines.astype(np.float64)[:, None], are_right, documents, len(np.unique(documents)))
    return fit_calibration(observed, dataset=reference, split=str(Split.VAL))
