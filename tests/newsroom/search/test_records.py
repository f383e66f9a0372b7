"""The pictures of an index in columns: the same bytes, filters before ranking, words of any language, several parts."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import archives
import pytest

from newsroom.archive.filters import Filters, parse_filters
from newsroom.archive.records import Picture, Records
from schemas.messages import NotFoundError, UsageError
from schemas.metadata import Metadata

PICTURES = (
    Picture(
        image="a" * 64,
        part="images/test/part-0",
        part_row=3,
        width=400,
        height=300,
        licence="CC0-1.0",
        metadata=Metadata(
            title="Hochwasser in Köln",
            caption="Ein Boot der Feuerwehr auf dem Rhein",
            credit="dpa",
            date="2021-07-15",
            place="Köln, Deutschland",
            keywords=("Flut", "Rhein"),
        ),
    ),
    Picture(
        image="b" * 64,
        width=300,
        height=400,
        metadata=Metadata(title="City hall", credit="AFP", rights="(c) AFP", date="2019-05", place="New York"),
        shown_with="The mayor speaks about floods",
    ),
    Picture(image="c" * 64, width=200, height=200, metadata=Metadata(title="York Minster", date="2020")),
    *(Picture(image=f"{number:064d}", metadata=Metadata(caption="a common word")) for number in range(12)),
)


@pytest.fixture(scope="module", params=[1, 3])
def records(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Records:
    """The same pictures in one part and in several."""
    return archives.write_records(tmp_path_factory.mktemp("records"), PICTURES, request.param)


def names(found: list[Picture]) -> list[str]:
    return sorted(picture.image[0] for picture in found)


def selected(records: Records, *where: str, entities: tuple[str, ...] = ()) -> str:
    """Return the first letters of the content hashes that filters leave."""
    filters = parse_filters(where, entities)
    found = records.select(filters)
    assert found is not None and len(found) == records.number(filters)
    return "".join(names(records.pictures([int(row) for row in found])))


def test_pictures_come_back_as_they_were_in_the_order_asked_for(records: Records) -> None:
    rows = records.rows_of(["c" * 64, "0" * 63 + "x", "a" * 64, "b" * 64, "a" * 15 + "b" * 49])
    assert rows[1] is None and rows[4] is None
    third, first, second = (row for row in rows if row is not None)
    said = replace(PICTURES[1], licence="(c) AFP")
    assert records.pictures([third, first, second, third]) == [PICTURES[2], PICTURES[0], said, PICTURES[2]]
    assert records.pictures([]) == [] and records.count == len(PICTURES)
    assert records.rows_named(["a" * 64]).tolist() == [first]
    with pytest.raises(NotFoundError, match="not in this index"):
        records.rows_named(["d" * 64])


def test_the_same_pictures_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        archives.write_records(tmp_path / name, PICTURES, 2)
    one, two = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("one", "two")
    )
    assert one == two and len(one) > 10


def test_what_is_counted_is_said(records: Records) -> None:
    assert records.described() == {
        "title": 3, "caption": 13, "credit": 2, "place": 2, "keywords": 1, "date": 3, "licence": 2, "shown_with": 1,
    }  # fmt: skip
    assert records.values("place") == ["Köln, Deutschland", "New York"] and records.values("credit") == ["AFP", "dpa"]
    assert records.values("keywords") == ["Flut", "Rhein"]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("date>=2020", "ac"),
        ("date < 2019-06", "b"),
        ("date>=2019-05", "abc"),
        ("date>2019", "ac"),
        ("date<=2020", "bc"),
        ("date=2021-07", "a"),
        ("date>2021-07-14", "a"),
        ("date>2021-07-15", ""),
        ("credit=DPA", "a"),
        ("licence=(c) AFP", "b"),
        ("orientation=portrait", "b"),
        ("orientation=square", "c"),
        ("width>200", "ab"),
        ("width!=200", "ab" + "0" * 12),
        ("place~new york", "b"),
        ("title~york", "c"),
        ("title~koln", "a"),
        ("keywords~rhein", "a"),
        ("keywords~flut rhein", ""),
        ("credit~AFP", "b"),
        ('title~" OR 1=1 --', ""),
        ("credit='; DROP TABLE images; --", ""),
    ],
)
def test_a_condition_leaves_what_it_says(records: Records, where: str, rows: str) -> None:
    assert selected(records, where) == "".join(sorted(rows))
    assert records.count == len(PICTURES)


def test_conditions_and_entities_hold_together(records: Records) -> None:
    assert selected(records, "date>=2019", "credit!=dpa") == "bc"
    assert selected(records, entities=("Feuerwehr", "köln")) == "a"
    assert selected(records, entities=("mayor",)) == "b"
    assert records.select(Filters()) is None and records.number(Filters()) == len(PICTURES)


FIELDS = "date, width, height, credit, licence, format, orientation, title, caption, place, keywords"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (["date"], f"--where 'date': expected FIELD OP VALUE, such as date>=2019-05-01; fields: {FIELDS}"),
        (["colour=red"], f"--where 'colour=red': no field 'colour'; fields: {FIELDS}"),
        (
            ["credits=dpa"],
            f"--where 'credits=dpa': no field 'credits'; fields: {FIELDS}; did you mean credit=dpa?",
        ),
        (["Width=<8"], "--where 'Width=<8': expected width with one of < <= = != >= >"),
        ([""], f"--where '': expected FIELD OP VALUE, such as date>=2019-05-01; fields: {FIELDS}"),
        (["date>="], f"--where 'date>=': expected FIELD OP VALUE, such as date>=2019-05-01; fields: {FIELDS}"),
        (["width>=-1"], "--where 'width>=-1': expected a number of pixels"),
        (["width=1000000000"], "--where 'width=1000000000': expected a number of pixels"),
        (["credit<a"], "--where 'credit<a': expected credit with one of = != ~"),
        (["licence~a"], "--where 'licence~a': expected licence with one of = !="),
        (["title=a"], "--where 'title=a': expected title with one of ~"),
        (["height=1x"], "--where 'height=1x': expected a number of pixels"),
        (["date=May"], "--where 'date=May': expected a year, month or day, such as 2019, 2019-05 or 2019-05-01"),
        (["place~."], "--where '.': expected a word at least"),
    ],
)
def test_what_is_wrong_with_a_condition_is_said_in_one_line(where: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filters(where)
    assert str(caught.value) == message


def test_an_entity_of_no_word_is_refused_by_its_option() -> None:
    with pytest.raises(UsageError, match=r"^--entity '\.\.\.': expected a word at least$"):
        parse_filters((), ["..."])
    assert parse_filters(["width=999999999"])[0].low == 999_999_999


def test_facets_count_what_filters_leave(records: Records) -> None:
    assert records.facets()["date"] == [("2019", 1), ("2020", 1), ("2021", 1)]
    assert records.facets(parse_filters(["date>=2020"])) == {
        "date": [("2020", 1), ("2021", 1)],
        "credit": [("dpa", 1)],
        "licence": [("CC0-1.0", 1)],
        "orientation": [("landscape", 1), ("square", 1)],
    }


@pytest.mark.parametrize("parts", [1, 4])
def test_facets_are_what_counting_gives(tmp_path: Path, parts: int) -> None:
    agencies = ("dpa", "AFP", "DPA", None, "Reuters")
    pictures = [
        Picture(image=f"{number:064x}", metadata=Metadata(credit=agencies[number % 5], date=f"20{number % 7:02d}-01"))
        for number in (n * 2**200 for n in range(200))
    ]
    facets = archives.write_records(tmp_path, pictures, parts).facets(parse_filters(["date<2004"]))
    kept = [each.metadata for each in pictures if (each.metadata.date or "") < "2004"]
    years, credit = (Counter(value for value in values if value) for values in (
        ((said.date or "")[:4] for said in kept), ((said.credit or "").lower() for said in kept)
    ))  # fmt: skip
    assert dict(facets["date"]) == years
    assert {label.lower(): number for label, number in facets["credit"]} == credit
    assert [number for _, number in facets["credit"]] == sorted(credit.values(), reverse=True)


def test_a_picture_that_is_gone_is_nowhere(tmp_path: Path) -> None:
    gone = archives.write_records(tmp_path, PICTURES, 2, gone=["a" * 64])
    assert gone.count == len(PICTURES) - 1 and gone.rows_of(["a" * 64, "b" * 64]).count(None) == 1
    assert selected(gone, "date>=2019") == "bc" and selected(gone, entities=("Rhein",)) == ""
    assert selected(gone, "credit!=AFP") == "0" * 12 + "c"
    assert gone.facets()["credit"] == [("AFP", 1)] and gone.described()["title"] == 2
    assert gone.values("credit") == ["AFP"] and gone.values("keywords") == []
    assert gone.words.rank("Hochwasser Minster", 10).rows.tolist() == gone.rows_named(["c" * 64]).tolist()
