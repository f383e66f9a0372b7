"""A document before its images are known: what every source yields and the documents stage filters.

An image is still an address (`uri`): a URL, the path of a local file, or `row:<n>` of a feature array. The images stage
turns addresses into content hashes; `pipelines.documents.resolve` then makes a `schemas.documents.Document` of a draft.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.documents import UNDETERMINED, Link, Provenance, Sentence, Split


@dataclass(frozen=True, slots=True)
class Draft:
    """A document whose images are addresses.

    Attributes:
        links: ground truth over `sentences` and `image_uris` (None: unknown), as indices from 0.
        split: where the source itself says; None leaves it to the shards stage.
        image_licences: of each image, where the source states it; empty: of none.
        retrieved: when what it was read from was fetched, ISO 8601 in UTC; None where it came from a file. It never
            gets into a version (`pipelines.sources.retrievals`).
    """

    id: str
    dataset: str
    sentences: tuple[Sentence, ...]
    image_uris: tuple[str, ...]
    links: tuple[Link, ...] | None
    provenance: Provenance
    language: str = UNDETERMINED
    split: Split | None = None
    image_licences: tuple[str | None, ...] = ()
    retrieved: str | None = None
