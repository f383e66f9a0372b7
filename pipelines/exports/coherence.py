"""How well the sentences and images of a document go together, by the links that a model predicted for a version.

    coherence = sum of its links' probabilities / min(sentences, images), 0 to 1

A document has at most min(sentences, images) links, since each sentence and each image is in one at most. Links without
a calibrated probability count with their similarity, negative ones with 0. A document without links has 0.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from schemas.errors import NotFoundError, UsageError
from schemas.lake import MANIFEST, Folder
from schemas.links import LINK_SCHEMA, read_links
from schemas.parts import read_part


@dataclass(frozen=True, slots=True)
class Coherence:
    """The sums of documents' links, by id, and the fingerprint of what predicted them."""

    made_by: str
    sums: Mapping[str, float]

    def of(self, document: str, *, sentences: int, images: int) -> float:
        """Return the coherence of a document, 0 to 1."""
        return min(1.0, self.sums.get(document, 0.0) / max(1, min(sentences, images)))


def read_coherence(folder: Folder, dataset: str) -> Coherence:
    """Return the coherence of the documents of a version by the links in a folder (`multilink link --dataset`).

    Args:
        folder: of the links.
        dataset: NAME@VERSION.

    Raises:
        NotFoundError: no links are there.
        UsageError: they are of another version.
    """
    if not folder.exists(MANIFEST):
        raise NotFoundError(
            f"--links {folder.uri}: expected what `multilink link --dataset` wrote, found no {MANIFEST}"
        )
    manifest = read_links(folder)
    if manifest.dataset != dataset:
        raise UsageError(f"--links {folder.uri}: links of {manifest.dataset}, expected those of {dataset}")
    sums: defaultdict[str, float] = defaultdict(float)
    for entry in manifest.files:
        if entry.path.startswith("links/"):
            for document, value in _values(read_part(folder, entry, _COLUMNS, LINK_SCHEMA)):
                sums[document] += value
    return Coherence(manifest.made_by, sums)


_COLUMNS = ("document", "similarity", "probability")


def _values(links: pa.Table) -> list[tuple[str, float]]:
    rows = zip(*(links[name].to_pylist() for name in _COLUMNS), strict=True)
    return [
        (key, max(0.0, similarity if probability is None else probability)) for key, similarity, probability in rows
    ]
