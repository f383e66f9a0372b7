"""A document as a row of its table (`schemas.documents.document_schema`), and back."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from schemas.documents import (
    AFTER_SENTENCE,
    GIVEN_LINKS,
    GIVEN_SIMILARITIES,
    IMAGE_NUMBERS,
    SENTENCE_NUMBERS,
    Document,
    Given,
    GivenLink,
    ImageRef,
    Link,
    Provenance,
    Role,
    Sentence,
    Split,
)
from schemas.messages import IntegrityError


def to_row(document: Document) -> dict[str, Any]:
    """Return a document as a row of `document_schema()` (its split must be assigned).

    Raises:
        IntegrityError: an image stands where the document has no sentence.
    """
    if document.split is None:
        raise ValueError(f"document {document.id} has no split yet")
    links, after = document.links, document.after_sentence
    if after and (problem := layout_problem(after, sentences=len(document.sentences), images=len(document.images))):
        raise IntegrityError(f"document {document.id}: {problem}")
    return {
        "id": document.id,
        "dataset": document.dataset,
        "language": document.language,
        "split": str(document.split),
        "sentences": [{"text": s.text, "role": str(s.role)} for s in document.sentences],
        "images": [{"hash": i.hash, "source": i.source} for i in document.images],
        "links": None
        if links is None
        else [
            {
                "sentence": link.sentence,
                "image": link.image,
                "relations": [{"name": name, "value": value} for name, value in link.relations],
            }
            for link in links
        ],
        "provenance": {
            "source": document.provenance.source,
            "record_id": document.provenance.record_id,
            "url": document.provenance.url,
            "licence": document.provenance.licence,
        },
        AFTER_SENTENCE: list(after) if is_placed(after) else None,
        **_given_columns(document.given),
        SENTENCE_NUMBERS: list(document.sentence_numbers) or None,
        IMAGE_NUMBERS: list(document.image_numbers) or None,
    }


def from_row(row: Mapping[str, Any]) -> Document:
    """Return the document of a row of `document_schema()`, which may lack columns that were added later.

    What the images part says of its images (licence, metadata) is not with it.
    """
    links, after, given = row["links"], row.get(AFTER_SENTENCE), row.get(GIVEN_LINKS)
    return Document(
        id=row["id"],
        dataset=row["dataset"],
        sentences=tuple(Sentence(each["text"], Role(each["role"])) for each in row["sentences"]),
        images=tuple(ImageRef(each["hash"], each["source"]) for each in row["images"]),
        links=None if links is None else tuple(map(_link, links)),
        provenance=Provenance(**row["provenance"]),
        language=row["language"],
        split=Split(row["split"]),
        after_sentence=tuple(after or ()),
        given=None
        if given is None
        else Given(tuple(GivenLink(**each) for each in given), tuple(row[GIVEN_SIMILARITIES] or ())),
        sentence_numbers=tuple(row.get(SENTENCE_NUMBERS) or ()),
        image_numbers=tuple(row.get(IMAGE_NUMBERS) or ()),
    )


def _link(fields: Mapping[str, Any]) -> Link:
    relations = tuple((each["name"], each["value"]) for each in fields["relations"])
    return Link(fields["sentence"], fields["image"], relations)


def _given_columns(given: Given | None) -> dict[str, Any]:
    if given is None:
        return {GIVEN_LINKS: None, GIVEN_SIMILARITIES: None}
    return {GIVEN_LINKS: list(map(asdict, given.links)), GIVEN_SIMILARITIES: list(given.similarities) or None}


def is_placed(after: Sequence[int | None]) -> bool:
    """Return whether it is known of any image where it stands."""
    return any(place is not None for place in after)


def layout_problem(after: Sequence[int | None], *, sentences: int, images: int) -> str:
    """Return what is wrong with the places of a document's images ("" where nothing is)."""
    if len(after) != images:
        return f"{images} images, but {AFTER_SENTENCE} of {len(after)}"
    outside = next((place for place in after if place is not None and not 0 <= place <= sentences), None)
    return "" if outside is None else f"{AFTER_SENTENCE} {outside} is outside 0 to {sentences} sentences"
