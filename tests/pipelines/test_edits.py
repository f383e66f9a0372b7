"""Whatever takes an image out of a document gives what a build gives that never had it, every optional column set.

The expected documents are made by hand: `without` counts positions one by one.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipelines.card.card import count_rights
from pipelines.config import recipe
from pipelines.exports.subset import Selection, write_subset
from pipelines.forgetting.forget import forget
from pipelines.run import BuildSummary, build_dataset
from pipelines.sources.corpora.compose import extras_of
from pipelines.sources.takedowns import parse_takedowns
from schemas.document_rows import to_row
from schemas.documents import Document, Given, GivenLink, ImageRef, Link, Provenance, Role, Sentence, Split
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest, verify
from schemas.metadata import Metadata
from schemas.overrides import override

Say = Callable[[str], None]
TEXTS = (
    Sentence("Cut the boards.", Role.BODY),
    Sentence("Sand them twice.", Role.LEAD),
    Sentence("Glue.", Role.CAPTION),
)


def picture(name: str) -> bytes:
    """Return a picture; those whose names begin with s are small."""
    stream = io.BytesIO()
    shape = (30, 40, 3) if name.startswith("s") else (90, 120, 3)
    pixels = np.random.default_rng(sum(map(ord, name))).integers(0, 255, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def document(number: int, names: Sequence[str]) -> Document:
    pairs = len(TEXTS) * len(names)
    return Document(
        id=f"doc-{number}",
        dataset="hf",
        sentences=TEXTS,
        images=tuple(ImageRef(name, f"https://h.example/{number}/{name}.png", f"CC {name}", Metadata(caption=name))
                     for name in names),
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


ALL = [document(0, "abcd"), document(1, ["e", "a", "s1"]), document(2, ["f", "g"]), document(3, ["s2", "h", "i"])]


def without(whole: Document, gone: str) -> Document:
    """Return a document without an image, counted by hand; the others keep their numbers in the source's list."""
    images, links, after, given, cells, new = [], [], [], [], [], {}
    numbers = whole.image_numbers or tuple(range(len(whole.images)))
    for position, image in enumerate(whole.images):
        if image.hash != gone:
            new[position] = len(images)
            images.append(image)
            after.append(whole.after_sentence[position])
    for link in whole.links or ():
        if link.image in new:
            links.append(Link(link.sentence, new[link.image], link.relations))
    assert whole.given is not None
    for told in whole.given.links:
        if told.image in new:
            given.append(GivenLink(told.sentence, new[told.image], told.similarity))
    for text in range(len(whole.sentences)):
        for position in range(len(whole.images)):
            if position in new:
                cells.append(whole.given.similarities[text * len(whole.images) + position])
    kept = tuple(numbers[old] for old in new)
    return Document(
        whole.id, whole.dataset, whole.sentences, tuple(images), tuple(links), whole.provenance, whole.language,
        whole.split, tuple(after), Given(tuple(given), tuple(cells)),
        image_numbers=() if kept == tuple(range(len(kept))) else kept,
    )  # fmt: skip


def build(
    folder: Path, documents: Sequence[Document], quiet: Say, *settings: str, broken: str = "", lake: str = "lake"
) -> tuple[BuildSummary, Lake]:
    (folder / "shards").mkdir(parents=True, exist_ok=True)
    rows = []
    for each in documents:
        row = json.loads(json.dumps(to_row(each)))
        about = {image.hash: {"licence": image.licence, "metadata": {"caption": image.hash}} for image in each.images}
        shown = [
            {"bytes": b"none" if image.hash == broken else picture(image.hash), "path": None} for image in each.images
        ]
        extras = json.dumps(extras_of(row, about))
        rows.append({"sentences": row["sentences"], "images": shown, "multilink": extras})
    pq.write_table(pa.Table.from_pylist(rows), folder / "shards" / "all.parquet")
    plain = [f"source.documents={folder / 'shards'}", "features.images=", "features.sentences=", *settings]
    home = Lake.at(str(folder / lake))
    return build_dataset(override(recipe("hf"), plain), lake=home, say=quiet), home


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
    counts = {name: (row.documents, row.images, row.links, row.placed_images) for name, row in found[0].splits.items()}
    assert counts == {
        name: (row.documents, row.images, row.links, row.placed_images)
        for name, row in expected.manifest.splits.items()
    }
    assert list(verify(*found)) == []


def version(summary: BuildSummary) -> tuple[Manifest, Folder]:
    return summary.manifest, Folder(summary.path)


@pytest.fixture(scope="module")
def never(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], BuildSummary]:
    """Give the version of all documents without an image, built once."""

    @cache
    def built(gone: str) -> BuildSummary:
        return build(tmp_path_factory.mktemp("never"), [without(each, gone) for each in ALL], lambda _: None)[0]

    return built


@pytest.fixture(scope="module")
def all_built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("all")
    build(folder, ALL, lambda _: None)
    return folder / "lake"


@pytest.fixture
def had(all_built: Path, tmp_path: Path) -> Lake:
    """Give a lake of one's own with the version of all documents."""
    return Lake.at(str(shutil.copytree(all_built, tmp_path / "had")))


@pytest.mark.parametrize("gone", ["a", "b", "d"])
def test_an_image_that_cannot_be_had(
    gone: str, never: Callable[[str], BuildSummary], tmp_path: Path, quiet: Say
) -> None:
    expected = never(gone)
    found, _ = build(tmp_path / "broken", ALL, quiet, broken=gone)
    equal(version(found), expected)


@pytest.mark.parametrize("gone", ["a", "b", "d", "s1"])
def test_an_image_that_is_forgotten(gone: str, never: Callable[[str], BuildSummary], had: Lake, quiet: Say) -> None:
    entry = f"sha256:{hashlib.sha256(picture(gone)).hexdigest()}"
    forget(had, parse_takedowns([entry.encode()], name="list"), dry_run=False, say=quiet)
    equal(read_manifest(had, "hf"), never(gone))


def test_a_document_that_is_forgotten(had: Lake, tmp_path: Path, quiet: Say) -> None:
    """It shares an image with another one, which keeps it under its own address and licence."""
    expected, _ = build(tmp_path / "never", ALL[1:], quiet)
    forget(had, parse_takedowns([b"id:doc-0"], name="list"), dry_run=False, say=quiet)
    equal(read_manifest(had, "hf"), expected)


def test_all_that_is_stated_of_equal_bytes_is_kept_and_goes_with_its_document(tmp_path: Path, quiet: Say) -> None:
    """Of two licences none is chosen: the more permissive one may be somebody's mistake."""
    licences = {"doc-0": "CC BY 4.0", "doc-1": "CC BY-NC-ND 4.0"}
    documents = [
        replace(
            each,
            images=tuple(
                replace(image, licence=licences[each.id]) if image.hash == "a" else image for image in each.images
            ),
        )
        for each in ALL[:2]
    ]
    summary, lake = build(tmp_path, documents, quiet)
    key = hashlib.sha256(picture("a")).hexdigest()
    row = rows_of(*version(summary), "images")[key]
    assert row["licence"] == "CC BY 4.0; CC BY-NC-ND 4.0"
    assert [(each["source"], each["licence"]) for each in row["statements"]] == [
        ("https://h.example/0/a.png", "CC BY 4.0"), ("https://h.example/1/a.png", "CC BY-NC-ND 4.0")
    ]  # fmt: skip
    assert {each["metadata"]["caption"] for each in row["statements"]} == {"a"}
    assert "CC BY 4.0; CC BY-NC-ND 4.0" in count_rights(*version(summary))["images by licence"]
    others = [each for key, each in rows_of(*version(summary), "images").items() if key != row["hash"]]
    assert not any(each["statements"] for each in others)
    forget(lake, parse_takedowns([b"id:doc-0"], name="list"), dry_run=False, say=quiet)
    row = rows_of(*read_manifest(lake, "hf"), "images")[key]
    assert (row["source"], row["licence"], row["statements"]) == ("https://h.example/1/a.png", "CC BY-NC-ND 4.0", [])


def test_images_that_a_filter_rejects(tmp_path: Path, quiet: Say) -> None:
    left = [without(without(each, "s1"), "s2") for each in ALL]
    expected, _ = build(tmp_path / "never", left, quiet)
    setting = "quality.min_side_px=60"
    found, _ = build(tmp_path / "filtered", ALL, quiet, setting)
    equal(version(found), expected)
    assert found.manifest.failures["too-small"] == 2


def test_a_subset(had: Lake, tmp_path: Path, quiet: Say) -> None:
    expected, _ = build(tmp_path / "never", [ALL[1], ALL[2]], quiet)
    whole = read_manifest(had, "hf")
    chosen = write_subset(had, *whole, Selection(where="id in ('doc-1', 'doc-2')"), say=quiet)
    at = had.dataset(chosen.dataset, chosen.version)
    assert rows_of(chosen, at, "documents") == rows_of(*version(expected), "documents")
    before = rows_of(*whole, "images")
    assert rows_of(chosen, at, "images") == {key: before[key] for key in rows_of(*version(expected), "images")}
