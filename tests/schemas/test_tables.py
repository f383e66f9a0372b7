"""Schemas as the contract: rows are cast to them, files are checked against them."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from pipelines.images.packed import PackedImage
from pipelines.packs import PackRef
from schemas.documents import (
    Document,
    Image,
    ImageRef,
    Link,
    Provenance,
    Role,
    Sentence,
    Split,
    document_schema,
    image_schema,
    to_row,
)
from schemas.errors import IntegrityError
from schemas.failures import Failure, Reason, Stage
from schemas.features import FeatureColumn
from schemas.tables import check_schema, to_table

VECTOR = FeatureColumn(name="use", dimensions=4)
DOCUMENT = Document(
    id="a1",
    dataset="diy",
    sentences=(Sentence("Sand it."), Sentence("Übergabe", Role.CAPTION)),
    images=(ImageRef("00", "http://imgur.com/x.jpg"), ImageRef("01")),
    links=(Link(0, 1, (("story", True), ("meta", None))),),
    provenance=Provenance("reddit", "a1", url="http://reddit.com/a1"),
    language="en",
    split=Split.VAL,
)


@pytest.mark.parametrize("links", [None, (), DOCUMENT.links])
def test_the_three_states_of_links_survive_the_table(links: tuple[Link, ...] | None) -> None:
    document = dataclasses.replace(DOCUMENT, links=links)
    (row,) = to_table([to_row(document)], document_schema()).to_pylist()
    assert row == to_row(document)
    assert (None if row["links"] is None else len(row["links"])) == (None if links is None else len(links))


def test_a_document_without_split_is_no_row() -> None:
    with pytest.raises(ValueError, match="a1 has no split"):
        to_row(dataclasses.replace(DOCUMENT, split=None))


def test_a_null_where_none_may_be_is_refused() -> None:
    row = to_row(DOCUMENT) | {"language": None}
    with pytest.raises(IntegrityError, match="column language"):
        to_table([row], document_schema())


def test_columns_say_what_they_mean() -> None:
    for schema in (document_schema([VECTOR]), image_schema([VECTOR])):
        for field in schema:
            assert field.metadata[b"meaning"]


def test_a_reader_accepts_further_columns_and_nothing_else() -> None:
    check_schema(document_schema([VECTOR]), document_schema(), where="part")
    with pytest.raises(IntegrityError, match=r"column features\.use is missing"):
        check_schema(document_schema(), document_schema([VECTOR]), where="part")
    with pytest.raises(IntegrityError, match="part"):
        check_schema(image_schema(), document_schema(), where="part")


def test_a_record_is_the_same_after_its_travel() -> None:
    document = Document(
        id="d",
        dataset="s",
        sentences=(Sentence("One.", Role.CAPTION),),
        images=(ImageRef("h", "a.jpg", "CC0"),),
        links=(Link(0, 0, (("Visible", True),)),),
        provenance=Provenance("s", "r", retrieved="2026-01-01T00:00:00Z"),
        split=Split.VAL,
    )
    failure = Failure(Stage.IMAGES, "d#1", Reason.NOT_FOUND, "gone", "OSError")
    for record in (document, failure, PackedImage(Image("h", is_flat=True), PackRef("p", 3), "2026"), Sentence("One.")):
        for protocol in (2, pickle.HIGHEST_PROTOCOL):
            again = pickle.loads(pickle.dumps(record, protocol))
            assert again == record and type(again) is type(record) and hash(again) == hash(record)
