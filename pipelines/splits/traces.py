"""What of a document can be met again elsewhere: its images, its sentences, its whole text.

A trace is what leak search needs to know of a document, a clue one thing in it. A text is compared by its words alone,
so that capitals, punctuation and spacing hide nothing. What clues in several splits mean is in `leaks`.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from schemas.documents import Document, Split
from schemas.images import Image
from schemas.leaks import LeakKind

MIN_TOKENS = 5  # a shorter text ("Finished product.") is shared by chance
SHOWN_CHARACTERS = 120  # of a shared text, in a row
_APOSTROPHES = "'\u2019\u02bc"


@dataclass(frozen=True, slots=True)
class ImageTrace:
    """An image by its content hash and its fingerprint (hexadecimal; None: no pixels)."""

    hash: str
    fingerprint: str | None


@dataclass(frozen=True, slots=True)
class Trace:
    """What of a document can be met again elsewhere. Flat images are left out: they all look alike."""

    document: str
    split: Split
    images: tuple[ImageTrace, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class Clue:
    """One thing a document shows; clues of equal (kind, digest) are the same thing. An image has no tokens."""

    kind: LeakKind
    digest: bytes
    document: str
    split: Split
    key: str
    tokens: int = 0


def trace_of(document: Document, images: Mapping[str, Image]) -> Trace:
    """Return the trace of a document whose split is assigned.

    Args:
        document: the document.
        images: by content hash, at least those the document refers to.
    """
    if document.split is None:
        raise ValueError(f"document {document.id} has no split yet")
    seen = [images[ref.hash] for ref in document.images]
    shown = tuple(ImageTrace(image.hash, image.fingerprint) for image in seen if not image.is_flat)
    return Trace(document.id, document.split, shown, tuple(sentence.text for sentence in document.sentences))


class _Words(dict[int, str | None]):
    """For `str.translate`: letters, marks and digits stay, apostrophes go, anything else separates."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        if character in _APOSTROPHES:
            self[code] = None
        else:
            self[code] = character if unicodedata.category(character)[0] in "LMN" else " "
        return self[code]


_WORDS = _Words()


def normalise(text: str) -> str:
    """Return the words of a text, without case or compatibility forms, separated by single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().translate(_WORDS).split())


def clues_of(trace: Trace, *, min_tokens: int = MIN_TOKENS) -> Iterator[Clue]:
    """Yield each image, sentence and whole text of a document once, texts of fewer than `min_tokens` words not.

    The whole text is its sentences whatever their order.
    """
    document, split = trace.document, trace.split
    for image in sorted({image.hash for image in trace.images}):
        yield Clue(LeakKind.EXACT_IMAGE, _digest(image), document, split, image)
    texts = [normalise(text) for text in trace.texts]
    for text in sorted(set(texts)):
        if (tokens := len(text.split())) >= min_tokens:
            yield Clue(LeakKind.SENTENCE, _digest(text), document, split, _shown(text), tokens)
    if (tokens := sum(len(text.split()) for text in texts)) >= min_tokens:
        whole = "\n".join(sorted(filter(None, texts)))
        yield Clue(LeakKind.DOCUMENT_TEXT, _digest(whole), document, split, _shown(whole), tokens)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _shown(text: str) -> str:
    """Return a text for a row: as it is, or its beginning and its digest, so that two long ones stay two."""
    line = text.replace("\n", " ")
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}... {_digest(text).hex()}"
