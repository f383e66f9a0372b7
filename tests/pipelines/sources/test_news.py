"""News articles of JSON Lines, whose expected documents are written by hand from the fixture; and a picture archive."""

import json
import shutil
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from builds import build_of, by_source
from candidates import candidate_of, licences_of, names, parted, uris_of
from picture_files import file_of, smooth
from PIL import Image
from shared_pictures import SEVERAL, check_reading

from pipelines.sources.datasets.news import ArchiveSource, NewsSource
from pipelines.sources.records import CandidateDocument, CandidateImage
from schemas.documents import Link, Provenance, Role, Sentence, Split, image_schema
from schemas.failures import Reason
from schemas.lake import Lake
from schemas.messages import UsageError
from schemas.metadata import Metadata
from schemas.tables import check_schema

FOLDER = Path(__file__).parents[2] / "fixtures" / "news"
HEADLINE, LEAD, CAPTION, BODY = Role.HEADLINE, Role.LEAD, Role.CAPTION, Role.BODY


def outcomes(path: Path) -> tuple[list[CandidateDocument], list[str]]:
    drafts, failures = parted(NewsSource(articles=str(path)).read())
    return drafts, names(failures)


def draft(record_id: str, texts: dict[Role, str], image: str, *, language: str) -> CandidateDocument:
    return candidate_of(
        id=record_id,
        dataset="news",
        sentences=tuple(Sentence(text, role) for role, text in texts.items()),
        image_uris=(image,),
        links=tuple(Link(index, 0) for index in range(len(texts))),
        provenance=Provenance("news", record_id),
        language=language,
        after_sentence=(list(texts).index(CAPTION),) if CAPTION in texts else (),
    )


def test_json_lines() -> None:
    drafts, failures = outcomes(FOLDER / "articles.jsonl")
    assert drafts == [
        draft(
            "n-1",
            {
                HEADLINE: "Zug & Flug",
                LEAD: "Wer fliegt noch?",
                CAPTION: "Ein Zug in Chur.",
                BODY: "Immer mehr Menschen nehmen den Zug. Das zeigt eine Studie.",
            },
            "pictures/n-1.jpg",
            language="de",
        ),
        draft("2", {HEADLINE: "Only a headline"}, "https://news.example/2.png", language="und"),
        draft("n-3", {BODY: "Un texte."}, "3.jpg", language="fr"),
        draft("n-1", {HEADLINE: "Another of this id"}, "7.jpg", language="und"),
    ]
    assert failures == [
        "n-3 empty-sentence",
        "n-3 empty-sentence",
        "n-4 missing-field",
        "n-5 empty-document",
        "n-5 empty-sentence",
        "articles.jsonl:7 missing-field",
        "articles.jsonl:8 broken-record",
        "n-1 empty-sentence",
        "articles.jsonl:10 broken-record",
        "n-9 broken-record",
        "n-10 missing-field",
        "articles.jsonl:13 broken-record",
    ]


def test_articles_may_say_their_split_licence_and_address(tmp_path: Path) -> None:
    record = {"image": "1.jpg", "caption": "A cat.", "licence": "CC0-1.0", "url": "https://h/1"}
    records = [record | {"id": 1, "split": "dev"}, record | {"id": 2, "split": 7}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    (article,), failures = outcomes(tmp_path / "a.jsonl")
    assert (article.split, licences_of(article)) == (Split.VAL, ("CC0-1.0",))
    assert article.provenance == Provenance("news", "1", "https://h/1", "CC0-1.0")
    assert failures == ["2 broken-record"]


def picture(path: Path, seed: int, **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file_of(smooth(300, 200, seed), "JPEG", **options))


def copyright_of(text: str) -> Image.Exif:
    exif = Image.Exif()
    exif[0x8298] = text
    return exif


def lines(path: Path, *records: object) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_a_record_is_a_picture_with_what_is_said_of_it(tmp_path: Path) -> None:
    said = {"title": " A\nboat ", "date": "20210715", "keywords": ["x", "x", " "], "credit": None, "other": 1}
    path = lines(tmp_path / "a.jsonl", {"id": 7, "image": "b.jpg", "licence": "CC0-1.0", **said})
    (found,) = ArchiveSource(archive=path).read()
    about = Metadata(title="A boat", date="2021-07-15", keywords=("x",))
    assert (found.id, found.sentences, found.links) == ("7", (), None)
    assert found.images == (CandidateImage("b.jpg", licence="CC0-1.0", metadata=about),)


@pytest.mark.parametrize("record", [{"id": "a"}, {"image": "a.jpg"}])
def test_a_record_without_its_fields_is_a_failure(tmp_path: Path, record: object) -> None:
    (found,) = ArchiveSource(archive=lines(tmp_path / "a.jsonl", record)).read()
    assert found.reason is Reason.MISSING_FIELD


@pytest.mark.parametrize("about", [{"date": "last summer"}, {"keywords": "boat"}, {"title": 3}])
def test_a_description_that_is_broken_costs_no_picture(tmp_path: Path, about: dict[str, object]) -> None:
    record = {"id": "a", "image": "a.jpg"}
    archive = lines(tmp_path / "a.jsonl", record | about)
    articles = lines(tmp_path / "b.jsonl", {**record, "caption": "A boat.", "picture": about})
    for source in (ArchiveSource(archive=archive), NewsSource(articles=articles)):
        picture, failure = source.read()
        assert picture.images[0].metadata is None
        assert (failure.record_id, failure.reason) == ("a", Reason.BROKEN_RECORD)


def test_a_folder_gives_every_picture_in_it(tmp_path: Path) -> None:
    pictures = ["b.jpg", "c/a.PNG", "d.Jpeg", "e.WEBP", "f.GIF", "g.tif", "h.avif"]
    for name in (*pictures, "readme.txt"):
        picture(tmp_path / name, 0)
    for name in ("._b.jpg", ".trash/b.jpg", "__MACOSX/c/._a.PNG", "__MACOSX/b.jpg"):  # as a Mac leaves them
        picture(tmp_path / name, 0)
    zipped = shutil.make_archive(str(tmp_path.with_suffix("")), "zip", tmp_path)
    for root in (str(tmp_path), zipped):
        found = list(ArchiveSource(images=root).read())
        assert [uris_of(each) for each in found if isinstance(each, CandidateDocument)] == [
            (name,) for name in pictures
        ]


def test_an_archive_is_built_with_what_the_record_says_over_what_the_file_says(tmp_path: Path) -> None:
    picture(tmp_path / "one.jpg", 1, exif=copyright_of("file's"))
    picture(tmp_path / "two.jpg", 2, exif=copyright_of("file's"))
    picture(tmp_path / "three.jpg", 3)
    records = [
        {"id": "1", "image": "one.jpg", "caption": "One", "rights": "record's", "licence": "CC0-1.0"},
        {"id": "2", "image": "two.jpg", "caption": "Two"},
        {"id": "3", "image": "three.jpg"},
        {"id": "4", "image": "gone.jpg"},
        {"id": "5", "image": "three.jpg"},
    ]
    archive, lake = lines(tmp_path / "archive.jsonl", *records), Lake.at(str(tmp_path / "lake"))
    summary = build_of("archive", lake, f"source.archive={archive}", "features.images=[]", *SEVERAL)
    assert {name: row.documents for name, row in summary.manifest.splits.items() if row.documents} == {"train": 4}
    for entry in summary.manifest.parts("images", "train"):
        check_schema(pq.read_schema(f"{summary.path}/{entry.path}"), image_schema(), where=entry.path)
    assert check_reading(lake, summary.manifest) == 1
    rows = by_source(summary).items()
    found = {key: (row["licence"], msgspec.convert(row["metadata"], Metadata | None)) for key, row in rows}
    assert found == {
        "one.jpg": ("CC0-1.0", Metadata(caption="One", rights="record's")),
        "two.jpg": (None, Metadata(caption="Two", rights="file's")),
        "three.jpg": (None, None),
    }


def test_an_archive_without_an_address_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"source\.archive: expected the path"):
        build_of("archive", tmp_path)
