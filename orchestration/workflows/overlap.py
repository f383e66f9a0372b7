"""What two versions share: ids, addresses and texts of documents, contents and addresses of images.

These are compared as exact keys. A key is kept as 16 bytes of its digest, so that two versions of a million documents
each fit into memory.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipelines.partitions.columns import Bytes
from pipelines.splits.shared import texts_of
from schemas.duplicates import LeakKind
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.parts import read_part

_DIGEST_BYTES = 16
EXAMPLES = 10
_OF_TEXTS = {LeakKind.SENTENCE: "sentences", LeakKind.DOCUMENT_TEXT: "texts of documents"}
_THINGS = ("ids", "addresses of pages", *_OF_TEXTS.values(), "contents of images", "addresses of images")


@dataclass(frozen=True, slots=True)
class Overlap:
    """Of one kind of thing, how many different ones two versions have.

    Attributes:
        thing: what is counted.
        first: in the first version alone.
        both: in both.
        second: in the second version alone.
        examples: some of those in both, as they are written in the second version.
    """

    thing: str
    first: int
    both: int
    second: int
    examples: tuple[str, ...]


def overlaps(first: Manifest, second: Manifest, folders: tuple[Folder, Folder]) -> list[Overlap]:
    """Return what two versions share, a row a kind of thing.

    Raises:
        IntegrityError: a part is damaged.
    """
    left, right = _digests(first, folders[0]), _digests(second, folders[1])
    common = {thing: np.intersect1d(left[thing], right[thing], assume_unique=True) for thing in _THINGS}
    wanted, shown = {thing: {*common[thing].tolist()} for thing in _THINGS}, defaultdict[str, set[str]](set)
    if any(wanted.values()):
        for thing, key in _keys(second, folders[1]):
            if _digest(key).rstrip(b"\0") in wanted[thing]:
                shown[thing] = {*sorted(shown[thing] | {key})[:EXAMPLES]}
    return [
        Overlap(
            thing,
            len(left[thing]) - len(common[thing]),
            len(common[thing]),
            len(right[thing]) - len(common[thing]),
            tuple(sorted(shown[thing])),
        )
        for thing in _THINGS
    ]


def _digests(manifest: Manifest, folder: Folder) -> dict[str, Bytes]:
    """Return the sorted digests of a version's different keys, by thing."""
    packed = defaultdict[str, bytearray](bytearray)
    for thing, key in _keys(manifest, folder):
        packed[thing] += _digest(key)
    return {thing: np.unique(np.frombuffer(packed[thing], f"S{_DIGEST_BYTES}")) for thing in _THINGS}


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()


def _keys(manifest: Manifest, folder: Folder) -> Iterator[tuple[str, str]]:
    """Yield thing and key of all that a version has; a key may come again."""
    for entry in manifest.parts("documents"):
        for row in read_part(folder, entry, ["id", "sentences", "images", "provenance"]).to_pylist():
            yield "ids", row["id"]
            if row["provenance"]["url"]:
                yield "addresses of pages", row["provenance"]["url"]
            for kind, text, _ in texts_of(sentence["text"] for sentence in row["sentences"]):
                yield _OF_TEXTS[kind], text
            for image in row["images"]:
                yield "contents of images", image["hash"]
                if image["source"]:
                    yield "addresses of images", image["source"]
