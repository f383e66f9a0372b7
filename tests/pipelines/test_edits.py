"""Whatever takes an image out of a document gives what a build gives that never had it, every optional column set.

The expected documents are made by hand: `without` counts positions one by one.
"""

import hashlib
import json
import shutil
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builds import PLAIN, build_of, quiet
from picture_files import file_of, noise

from pipelines.exports.subset import Selection, write_subset
from pipelines.forgetting.forget import forget
from pipelines.run import BuildSummary
from pipelines.sources.corpora.compose import extras_of
from pipelines.sources.takedowns import parse_takedowns
from schemas.document_rows import to_row
from schemas.documents import Document, Given, GivenLink, ImageRef, Link, Provenance, Role, Sentence, Split
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest, verify
from schemas.metadata import Metadata

TEXTS = (
    Sentence("Cut the boards.", Role.BODY),
    Sentence("Sand them twice.", Role.LEAD),
    Sentence("Glue.", Role.CAPTION),
)


def picture(name: str) -> bytes:
    """Return a picture; those whose names begin with s are small."""
    width, height = (40, 30) if name.startswith("s") else (120, 90)
    return file_of(noise(width, height, sum(map(ord, name))))


def document(number: int, names: Sequence[str]) -> Document:
    pairs = len(TEXTS) * len(names)
    return Document(
        id=f"doc-{number}",
        dataset="hf",
        sentences=TEXTS,
        images=tuple(
            ImageRef(name, f"https://h.example/{number}/{name}.png", f"CC {name} {number}", Metadata(caption=name))
            for name in names
        ),
        links=tuple(Link(place % 3, place, (("Visible", True), ("Story", None))) for place in range(len(names))),
        provenance=Provenance("before", f"record-{number}", f"https://h.example/{number}", "CC0"),
        language="de",
        split=Split.VAL if number == 1 else Split.TRAIN,
        after_sentence=tuple((place * 2) % 4 if place != 1 else None for place in range(len(names))),
        given=Given(
            tuple(GivenLink((place + 1) % 3, place, 0.25 if place else None) for place in range(len(names))),
            tuple(cell / 16 for cell in range(pairs)),
        ),
    )  # fmt: skip


ALL = [
    document(0, ["sa", "b", "c", "sd"]), document(1, ["e", "sa", "f"]), document(2, "gh"), document(3, ["i", "sk", "l"])
]  # fmt: skip
GONE = ("sa", "sd", "sk")  # small ones: first, last, and in the middle, one of them of two documents


def without(whole: Document, gone: Container[str]) -> Document:
    """Return a document without some images, counted by hand; the others keep their numbers in the source's list."""
    images, links, after, given, cells, new = [], [], [], [], [], {}
    numbers = whole.image_numbers or tuple(range(len(whole.images)))
    for position, image in enumerate(whole.images):
        if image.hash not in gone:
            new[position] = len(images)
            images.append(image)
            after.append(whole.after_sentence[position])
    for link in whole.links or ():
        if link.image in new:
            links.append(Link(link.sentence, new[link.image], link.relations))
    for told in whole.given.links:
        if told.image in new:
            given.append(GivenLink(told.sentence, new[told.image], told.similarity))
    for number, cell in enumerate(whole.given.similarities):  # a row of images a text
        if number % len(whole.images) in new:
            cells.append(cell)
    kept = tuple(numbers[old] for old in new)
    return Document(
        whole.id, whole.dataset, whole.sentences, tuple(images), tuple(links), whole.provenance, whole.language,
        whole.split, tuple(after), Given(tuple(given), tuple(cells)),
        image_numbers=() if kept == tuple(range(len(kept))) else kept,
    )  # fmt: skip


def build(folder: Path, documents: Sequence[Document], *settings: str, broken: Container[str] = ()) -> BuildSummary:
    (folder / "shards").mkdir(parents=True, exist_ok=True)
    rows = []
    for each in documents:
        row = json.loads(json.dumps(to_row(each)))
        about = {image.hash: {"licence": image.licence, "metadata": {"caption": image.hash}} for image in each.images}
        shown = [
            {"bytes": b"none" if image.hash in broken else picture(image.hash), "path": None} for image in each.images
        ]
        extras = json.dumps(extras_of(row, about))
        rows.append({"sentences": row["sentences"], "images": shown, "multilink": extras})
    pq.write_table(pa.Table.from_pylist(rows), folder / "shards" / "all.parquet")
    return build_of("hf", folder / "lake", f"source.documents={folder / 'shards'}", *PLAIN, *settings)


def rows_of(manifest: Manifest, folder: Folder, table: str) -> dict[str, dict[str, Any]]:
    """Return the rows of a version by id or hash; images in two splits have one row."""
    found = {}
    for split in manifest.splits:
        for entry in manifest.parts(table, split):
            for row in pq.read_table(folder.open(entry.path)).to_pylist():
                found[row.get("id") or row["hash"]] = row
    return found


def equal(found: tuple[Manifest, Folder], expected: BuildSummary) -> None:
    """Assert that two versions have the same documents and images, and that the first one is intact."""
    for table in ("documents", "images"):
        assert rows_of(*found, table) == rows_of(expected.manifest, Folder(expected.path), table)
    counts, others = (
        {name: (row.documents, row.images, row.links, row.placed_images) for name, row in each.splits.items()}
        for each in (found[0], expected.manifest)
    )
    assert counts == others
    assert list(verify(*found)) == []


def version(summary: BuildSummary) -> tuple[Manifest, Folder]:
    return summary.manifest, Folder(summary.path)


@pytest.fixture(scope="module")
def never(tmp_path_factory: pytest.TempPathFactory) -> BuildSummary:
    """Give the version of all documents without some images."""
    return build(tmp_path_factory.mktemp("never"), [without(each, GONE) for each in ALL])


@pytest.fixture(scope="module")
def fewer(tmp_path_factory: pytest.TempPathFactory) -> BuildSummary:
    """Give the version of all documents but the first."""
    return build(tmp_path_factory.mktemp("fewer"), ALL[1:])


@pytest.fixture(scope="module")
def all_built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("all")
    build(folder, ALL)
    return folder / "lake"


@pytest.fixture
def had(all_built: Path, tmp_path: Path) -> Lake:
    """Give a lake of one's own with the version of all documents."""
    return Lake.at(str(shutil.copytree(all_built, tmp_path / "had")))


def take_out(lake: Lake, *entries: str) -> None:
    forget(lake, parse_takedowns([entry.encode() for entry in entries], name="list"), dry_run=False, say=quiet)


def key_of(name: str) -> str:
    return hashlib.sha256(picture(name)).hexdigest()


def test_images_that_cannot_be_had(never: BuildSummary, tmp_path: Path) -> None:
    equal(version(build(tmp_path, ALL, broken=GONE)), never)


def test_images_that_are_forgotten(never: BuildSummary, had: Lake) -> None:
    take_out(had, *(f"sha256:{key_of(name)}" for name in GONE))
    equal(read_manifest(had, "hf"), never)


def test_images_that_a_filter_rejects(never: BuildSummary, tmp_path: Path) -> None:
    found = build(tmp_path, ALL, "quality.min_side_px=60")
    equal(version(found), never)
    assert found.manifest.failures["too-small"] == 4


def test_all_that_is_stated_of_equal_bytes_is_kept_and_goes_with_its_document(fewer: BuildSummary, had: Lake) -> None:
    """Of two licences none is chosen: the more permissive one may be somebody's mistake."""
    rows = rows_of(*read_manifest(had, "hf"), "images")
    row = rows.pop(key_of("sa"))
    assert row["licence"] == "CC sa 0; CC sa 1"
    assert [(each["source"], each["licence"]) for each in row["statements"]] == [
        ("https://h.example/0/sa.png", "CC sa 0"), ("https://h.example/1/sa.png", "CC sa 1")
    ]  # fmt: skip
    assert {each["metadata"]["caption"] for each in row["statements"]} == {"sa"}
    assert not any(each["statements"] for each in rows.values())
    take_out(had, "id:doc-0")
    equal(read_manifest(had, "hf"), fewer)
    row = rows_of(*read_manifest(had, "hf"), "images")[key_of("sa")]
    assert (row["source"], row["licence"], row["statements"]) == ("https://h.example/1/sa.png", "CC sa 1", [])


def test_a_subset(fewer: BuildSummary, had: Lake) -> None:
    whole = read_manifest(had, "hf")
    others = frozenset(rows_of(*whole, "documents")) - {"doc-0"}
    chosen = write_subset(had, *whole, Selection(ids=others), say=quiet)
    at = had.dataset(chosen.dataset, chosen.version)
    assert rows_of(chosen, at, "documents") == rows_of(*version(fewer), "documents")
    before = rows_of(*whole, "images")
    assert rows_of(chosen, at, "images") == {key: before[key] for key in rows_of(*version(fewer), "images")}
