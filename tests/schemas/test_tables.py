"""Schemas as the contract: rows are cast to them, files are checked against them."""

import dataclasses
import pickle

import pyarrow as pa
import pytest

from pipelines.images.inspect import PackedImage
from pipelines.packs import PackRef
from schemas.document_rows import to_row
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
)
from schemas.failures import FAILURE_SCHEMA, Failure, Reason, Stage
from schemas.features import FeatureColumn
from schemas.messages import IntegrityError
from schemas.metadata import RIGHTS_TYPE
from schemas.tables import check_schema, records_table, row_of, to_table
from training.linking.records import LINK_SCHEMA, PredictedLink, PredictedRelation

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
    fields = [*document_schema([VECTOR]), *image_schema([VECTOR])]
    assert not [field.name for field in fields if not field.metadata[b"meaning"]]


def test_a_reader_accepts_further_columns_and_nothing_else() -> None:
    check_schema(document_schema([VECTOR]), document_schema(), where="part")
    with pytest.raises(IntegrityError, match=r"column features\.use is missing"):
        check_schema(document_schema(), document_schema([VECTOR]), where="part")
    with pytest.raises(IntegrityError, match="part"):
        check_schema(image_schema(), document_schema(), where="part")


def test_a_reader_accepts_further_fields_of_a_struct_and_no_fewer() -> None:
    schema = image_schema()
    rights = schema.get_field_index("rights")
    more = schema.set(rights, pa.field("rights", pa.struct([*RIGHTS_TYPE, pa.field("claim", pa.string())])))
    check_schema(more, schema, where="part")
    with pytest.raises(IntegrityError, match="column rights is struct"):
        check_schema(schema, more, where="part")


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
    failure = Failure(Stage.IMAGES, "d", Reason.NOT_FOUND, "gone", "OSError", 1)
    for record in (document, failure, PackedImage(Image("h", is_flat=True), PackRef("p", 3), "2026"), Sentence("One.")):
        for protocol in (2, pickle.HIGHEST_PROTOCOL):
            again = pickle.loads(pickle.dumps(record, protocol))
            assert again == record and type(again) is type(record) and hash(again) == hash(record)


@pytest.mark.parametrize(
    ("after", "kept"), [((), None), ((0, 2), [0, 2]), ((None, 1), [None, 1]), ((None, None), None)]
)
def test_where_images_stand_survives_the_table(after: tuple[int | None, ...], kept: list[int | None] | None) -> None:
    (row,) = to_table([to_row(dataclasses.replace(DOCUMENT, after_sentence=after))], document_schema()).to_pylist()
    assert row["after_sentence"] == kept


@pytest.mark.parametrize(
    ("after", "problem"),
    [((0,), "2 images, but after_sentence of 1"), ((3, 0), "3 is outside 0 to 2"), ((0, -1), "-1 is outside 0 to 2")],
)
def test_an_image_stands_among_the_sentences(after: tuple[int, ...], problem: str) -> None:
    with pytest.raises(IntegrityError, match=f"document a1: .*{problem}"):
        to_row(dataclasses.replace(DOCUMENT, after_sentence=after))


def test_a_file_may_lack_a_column_that_was_added_later() -> None:
    older = document_schema().remove(document_schema().get_field_index("after_sentence"))
    check_schema(older, document_schema(), where="part")
    with pytest.raises(IntegrityError, match="column links is missing"):
        check_schema(older.remove(older.get_field_index("links")), document_schema(), where="part")


def test_records_are_the_table_of_their_rows() -> None:
    relation = PredictedRelation("story", 0.5)
    links = [
        PredictedLink("a", 0, 1, 0.25, 1, "models:/m/1"),
        PredictedLink("b", 2, 0, -0.5, 2, "models:/m/1", probability=0.75, relations=(relation,), text="t"),
    ]
    for some in (links, []):
        assert records_table(some, LINK_SCHEMA).equals(to_table(map(row_of, some), LINK_SCHEMA), check_metadata=True)
    failures = [Failure(Stage.LINKING, "a", Reason.UNREADABLE, "no")]
    assert records_table(failures, FAILURE_SCHEMA).equals(to_table(map(row_of, failures), FAILURE_SCHEMA))
    with pytest.raises(IntegrityError, match="1 nulls in column text"):
        records_table(links[:1], pa.schema([pa.field("text", pa.string(), nullable=False)]))
