"""The pictures of an index in SQLite: the same bytes, filters before ranking, full text of any language."""

import sqlite3
from pathlib import Path

import pytest

from schemas.errors import UsageError
from schemas.metadata import Metadata
from training.retrieval.filters import Filters, parse_filters
from training.retrieval.records import Picture, Records, write_records

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


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    path = tmp_path_factory.mktemp("records") / "images.sqlite"
    described = write_records(path, PICTURES)
    assert described == {
        "title": 3, "caption": 13, "credit": 2, "place": 2, "keywords": 1, "date": 3, "licence": 2, "shown_with": 1,
    }  # fmt: skip
    return Records(path)


def selected(records: Records, *where: str, entities: tuple[str, ...] = ()) -> list[int]:
    found = records.select(parse_filters(where, entities))
    assert found is not None
    return [int(row) for row in found]


def test_pictures_come_back_as_they_were_in_the_order_asked_for(records: Records) -> None:
    found = records.pictures([2, 0, 2])
    assert found == [PICTURES[2], PICTURES[0], PICTURES[2]]
    assert records.pictures([1])[0].licence == "(c) AFP"
    assert records.rows_of(["c" * 64, "0" * 63 + "x", "a" * 64]) == [2, None, 0]
    assert records.count == len(PICTURES)


def test_the_same_pictures_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_records(tmp_path / name, PICTURES)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("date>=2020", [0, 2]),
        ("date < 2019-06", [1]),
        ("date>=2019-05", [0, 1, 2]),
        ("credit=DPA", [0]),
        ("licence=(c) AFP", [1]),
        ("orientation=portrait", [1]),
        ("orientation=square", [2]),
        ("width>200", [0, 1]),
        ("place~new york", [1]),
        ("title~york", [2]),
        ("title~koln", [0]),
        ("keywords~rhein", [0]),
        ("credit~AFP", [1]),
        ('title~" OR 1=1 --', []),
        ("credit='; DROP TABLE images; --", []),
    ],
)
def test_a_condition_leaves_what_it_says(records: Records, where: str, rows: list[int]) -> None:
    assert selected(records, where) == rows
    assert records.count == len(PICTURES)


def test_conditions_and_entities_hold_together(records: Records) -> None:
    assert selected(records, "date>=2019", "credit!=dpa") == [1, 2]
    assert selected(records, entities=("Feuerwehr", "köln")) == [0]
    assert selected(records, entities=("mayor",)) == [1]
    assert records.select(Filters()) is None


@pytest.mark.parametrize(
    "where", ["", "date", "date>=", "colour=red", "width>=wide", "title=x", "credit<a", "place~...", "width>=-1"]
)
def test_a_condition_that_cannot_be_is_refused(where: str) -> None:
    with pytest.raises(UsageError, match="--where"):
        parse_filters([where])


def test_facets_count_what_filters_leave(records: Records) -> None:
    assert records.facets()["date"] == [("2019", 1), ("2020", 1), ("2021", 1)]
    found = records.facets(parse_filters(["date>=2020"]))
    assert found == {
        "date": [("2020", 1), ("2021", 1)],
        "credit": [("dpa", 1)],
        "licence": [("CC0-1.0", 1)],
        "orientation": [("landscape", 1), ("square", 1)],
    }


def test_facets_are_those_of_a_query_that_groups(tmp_path: Path) -> None:
    names = ("dpa", "AFP", "DPA", None, "Reuters")
    pictures = [
        Picture(image=f"{number:064x}", metadata=Metadata(credit=names[number % 5], date=f"20{number % 7:02d}-01"))
        for number in range(200)
    ]
    write_records(tmp_path / "images.sqlite", pictures)
    facets = Records(tmp_path / "images.sqlite").facets(parse_filters(["date<2004"]))
    with sqlite3.connect(tmp_path / "images.sqlite") as database:
        for name, value in {"date": "substr(date, 1, 4)", "credit": "credit"}.items():
            rows = database.execute(
                f"SELECT {value}, count(*) FROM images WHERE {value} IS NOT NULL AND date < '2004' "
                "GROUP BY 1 ORDER BY 2 DESC, 1"
            ).fetchall()
            assert [(label.lower(), number) for label, number in facets[name]] == [
                (label.lower(), number) for label, number in rows
            ]
    database.close()
