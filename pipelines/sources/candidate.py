"""A document before its images are known: what every source yields and the documents stage filters.

An image is still an address (`uri`): a URL, the path of a local file, or `row:<n>` of a feature array. The images stage
turns addresses into content hashes; `pipelines.documents.settle` then makes a `Document` of a candidate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urljoin

from schemas.documents import UNDETERMINED, Link, Provenance, Role, Sentence, Split
from schemas.tables import travels

# Quotes and dashes (U+2018 and so on) of which published files kept the lower half alone.
_HALVES = {0x13: "\u2013", 0x14: "\u2014", 0x18: "\u2018", 0x19: "\u2019", 0x1C: "\u201c", 0x1D: "\u201d"}


def sentence(text: str, role: Role = Role.SENTENCE) -> Sentence:
    """Return a sentence in one line: white space becomes single spaces, a lost apostrophe one again."""
    plain = text if text.isprintable() else text.translate(_HALVES)
    return Sentence(" ".join(plain.split()), role)


def stated(licences: Iterable[str | None]) -> tuple[str | None, ...]:
    """Return the licences of a candidate's images, as `CandidateDocument.image_licences` has them."""
    known = tuple(licences)
    return known if any(known) else ()


def absolute_url(base_url: str, address: str) -> str:
    """Return an address completed by that of its page; as it stands where it is malformed, for others to refuse."""
    try:
        return urljoin(base_url, address)
    except ValueError:
        return address


@travels
@dataclass(frozen=True, slots=True)
class CandidateDocument:
    """A document whose images are addresses.

    Attributes:
        links: ground truth over `sentences` and `image_uris` (None: unknown), as indices from 0.
        split: where the source itself says; None leaves it to the splits stage.
        image_licences: of each image, where the source states it; empty: of none.
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

    def licence_of(self, image: int) -> str | None:
        """Return the licence of an image by its position, None where the source states none."""
        return self.image_licences[image] if self.image_licences else None
