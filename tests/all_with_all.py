"""Documents that show images, and what comparing all images with all says of them: the calculation to compare with."""

from collections.abc import Iterable
from typing import Any

from pipelines.documents.rules import SettledDocument
from pipelines.images.inspect import PackedImage
from pipelines.settings import Policy
from schemas.documents import Document, Image, ImageRef, Provenance, Sentence, Split


def hashed(name: str) -> str:
    """Return a content hash that sorts as the name does, and ends in zeros."""
    return name.encode().hex().ljust(64, "0")


def settled(
    document: str, images: Iterable[Image], split: Split | None = None, texts: Iterable[str] = ()
) -> SettledDocument:
    shown, sentences = tuple(images), tuple(map(Sentence, texts))
    refs = tuple(ImageRef(image.hash) for image in shown)
    whole = Document(document, "made-up", sentences, refs, None, Provenance("made-up", document), split=split)
    return SettledDocument(whole, tuple(map(PackedImage, shown)))


def bits_apart(one: Image, other: Image) -> int | None:
    """Return the distance of two fingerprints; None where an image has none."""
    if one.fingerprint is None or other.fingerprint is None:
        return None
    return (int(one.fingerprint, 16) ^ int(other.fingerprint, 16)).bit_count()


def going(found: Iterable[Any], policy: Policy) -> set[tuple[str, str]]:
    """Return for which cluster which document goes, of rows with a document and a cluster."""
    shown = sorted((row.document, row.cluster) for row in found)
    if policy is not Policy.KEEP_FIRST:
        return set(shown) if policy is Policy.DROP_DOCUMENTS else set()
    gone, taken = set(), set[str]()
    for document in sorted({document for document, _ in shown}):
        clusters = [cluster for shower, cluster in shown if shower == document]
        faults = {(document, one) for one in clusters if one in taken or clusters.count(one) > 1}
        gone |= faults
        taken |= set() if faults else set(clusters)
    return gone
