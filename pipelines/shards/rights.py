"""What is stated of the rights of a version's documents and images: counted for its manifest and its card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pipelines.features.extraction import FeaturedDocument, FeaturedImage

NOT_STATED = "not stated"
OTHERS = "others"
MOST = 50  # statements of a kind that are listed
_LONG = 120  # characters of a statement
RightsStatement = tuple[str, str]  # what it is of, and what is stated


def rights_of_document(featured: FeaturedDocument) -> Iterator[RightsStatement]:
    """Yield what is stated of a document: its licence."""
    yield "documents by licence", (featured.document.provenance.licence or NOT_STATED)[:_LONG]


def rights_of_image(featured: FeaturedImage) -> Iterator[RightsStatement]:
    """Yield what is stated of an image: its licence by its source, else by its file; and what else its file says."""
    image, rights = featured.packed.image, featured.packed.image.rights
    yield "images by licence", (image.licence or (rights and rights.licence) or NOT_STATED)[:_LONG]
    if rights is None:
        return
    for kind in ("creator", "credit", "copyright"):
        if getattr(rights, kind):
            yield "images that name", kind
    if rights.source_type:
        yield "images by digital source type", rights.source_type[:_LONG]
    if rights.data_mining:
        yield "images by PLUS data mining", rights.data_mining[:_LONG]
    if rights.claim is not None:
        yield "images by C2PA claim", "intact" if rights.claim.is_intact else "broken"
        for use in rights.claim.training:
            yield "images by use in C2PA claim", use[:_LONG]
        if rights.claim.source_type:
            yield "images by digital source type in C2PA claim", rights.claim.source_type[:_LONG]


def merge_rights(tables: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return tables of how many have a statement as one; of many statements the rarest are summed up.

    Where each statement is in one table alone, the result does not depend on what is merged first.
    """
    values = Counter[str]()
    for table in tables:
        values.update(table)
    rest = values.pop(OTHERS, 0)
    ordered = sorted(values.items(), key=lambda each: (-each[1], each[0]))
    rest += sum(number for _, number in ordered[MOST:])
    return dict(ordered[:MOST]) | ({OTHERS: rest} if rest else {})
