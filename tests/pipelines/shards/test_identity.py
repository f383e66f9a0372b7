"""A version's name follows from what was read and what decides its bytes, and from nothing else.

Of each reason its commonest message is found, whatever the order and the parts.

Parts are written a row group at a time, with the size and digest that the manifest lists.
"""

import copy
import dataclasses
import hashlib
import weakref
from collections.abc import Iterator
from enum import StrEnum
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.config import RECIPES, recipe
from pipelines.recipe import BuildConfig
from pipelines.shards.writing import (
    DocumentSize,
    add_digests,
    build_identity,
    content_digest,
    summarise,
    version_of_build,
    write_part,
    write_rows,
)
from schemas.configs import Outside, naming
from schemas.documents import Document, ImageRef, Link, Provenance, Role, Sentence, Split
from schemas.failures import FAILURE_SCHEMA, Failure, Reason, Stage
from schemas.lake import Folder
from schemas.overrides import override
from schemas.tables import row_of, to_table
from schemas.versions import content

DOCUMENT = Document(
    id="a1",
    dataset="diy",
    sentences=(Sentence("Sand it."), Sentence("Übergabe", Role.CAPTION)),
    images=(ImageRef("00", "http://imgur.com/x.jpg", "CC0"), ImageRef("01")),
    links=(Link(0, 1, (("story", True), ("meta", None))),),
    provenance=Provenance("reddit", "a1", url="http://reddit.com/a1", retrieved="2026-01-01T00:00:00Z"),
)
FAILURE = Failure(Stage.IMAGES, "a1", Reason.NOT_FOUND, "404", "HTTPError", 0)


def identity(*settings: str, extractors: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    return build_identity(naming(override(recipe("documents"), settings)), extractors, ["pipelines.build"])


def name_of(config: BuildConfig) -> str:
    return version_of_build(build_identity(naming(config), (), ["pipelines.build"]), 7)


def settings_of(part: Any, *path: str) -> Iterator[tuple[tuple[str, ...], dataclasses.Field[Any]]]:
    """Yield every setting of a configuration, with the names of the parts above it."""
    for each in dataclasses.fields(part):
        value = getattr(part, each.name)
        yield from settings_of(value, *path, each.name) if dataclasses.is_dataclass(value) else [(path, each)]


def another(value: Any) -> Any:
    """Return a value of the same type that is another one; what a field allows is not asked."""
    if isinstance(value, StrEnum):
        return next(each for each in type(value) if each is not value)
    if isinstance(value, bool):
        return not value
    return (*value, "x") if isinstance(value, tuple) else value + ("x" if isinstance(value, str) else 1)


@pytest.mark.parametrize("name", RECIPES)
def test_a_setting_names_the_version_unless_its_field_is_marked(name: str) -> None:
    config = RECIPES[name]()
    marked = set[str]()
    for path, each in settings_of(config):
        changed = copy.deepcopy(config)
        part = reduce(getattr, path, changed)
        object.__setattr__(part, each.name, another(getattr(part, each.name)))
        is_marked = Outside in each.metadata
        assert (name_of(changed) == name_of(config)) is is_marked, (*path, each.name)
        marked |= {each.name} if is_marked and path == ("source",) else set()
    assert marked == {str(given.name) for given in config.source.inputs}


def test_a_document_is_digested_as_this_text() -> None:
    """Written out: neither the order of fields nor Python's way to print them may change it."""
    assert content(DOCUMENT) == {
        "id": "a1",
        "dataset": "diy",
        "sentences": [{"text": "Sand it."}, {"text": "Übergabe", "role": "caption"}],
        "images": [{"hash": "00", "source": "http://imgur.com/x.jpg", "licence": "CC0"}, {"hash": "01"}],
        "links": [{"sentence": 0, "image": 1, "relations": [["story", True], ["meta", None]]}],
        "provenance": {"source": "reddit", "record_id": "a1", "url": "http://reddit.com/a1"},
    }
    assert f"{content_digest(DOCUMENT):064x}".startswith("896b34b1ee86b0e4")


@pytest.mark.parametrize(
    "change",
    [
        {"id": "a2"},
        {"links": None},
        {"links": ()},
        {"split": Split.VAL},
        {"language": "en"},
        {"sentences": DOCUMENT.sentences[::-1]},
        {"images": (ImageRef("00", "http://imgur.com/x.jpg"), ImageRef("01"))},
    ],
)
def test_what_a_document_says_is_digested(change: dict[str, Any]) -> None:
    assert content_digest(dataclasses.replace(DOCUMENT, **change)) != content_digest(DOCUMENT)


def test_luck_is_not_digested() -> None:
    provenance = dataclasses.replace(DOCUMENT.provenance, retrieved="2026-02-02T00:00:00Z")
    assert content_digest(dataclasses.replace(DOCUMENT, provenance=provenance)) == content_digest(DOCUMENT)
    assert content_digest(dataclasses.replace(FAILURE, exception="OtherError")) == content_digest(FAILURE)
    assert content_digest(dataclasses.replace(FAILURE, message="410")) != content_digest(FAILURE)


@dataclasses.dataclass(frozen=True)
class Today:
    name: str


@dataclasses.dataclass(frozen=True)
class Tomorrow:
    name: str
    weight: int = 1


def test_a_new_field_with_its_default_renames_nothing() -> None:
    assert content(Tomorrow("x")) == content(Today("x"))
    assert content(Tomorrow("x", 2)) != content(Today("x"))


@given(st.lists(st.integers(0, (1 << 256) - 1), max_size=8), st.integers(0, 8), st.randoms())
def test_the_order_of_what_is_read_does_not_show(digests: list[int], cut: int, random: Any) -> None:
    shuffled = random.sample(digests, len(digests))
    assert add_digests([add_digests(shuffled[:cut]), add_digests(shuffled[cut:])]) == add_digests(digests)


def test_a_version_follows_from_settings_content_extractors_code_and_libraries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {
        "as it is": version_of_build(identity(), 7),
        "other content": version_of_build(identity(), 8),
        "a setting": version_of_build(identity("dedupe.radius=2"), 7),
        "an extractor": version_of_build(identity(extractors=(("net", "ab"),)), 7),
    }
    for name, function in (("code", "reached_digest"), ("libraries", "picture_libraries")):
        with monkeypatch.context() as patch:
            patch.setattr(f"pipelines.shards.writing.{function}", lambda *_: {"pyarrow": "0"} if _ == () else "0")
            found[name] = version_of_build(identity(), 7)
    assert len(set(found.values())) == len(found)
    assert (
        version_of_build(identity("http.attempts=9", "max_failure_share=0.9", "features.threads=3"), 7)
        == found["as it is"]
    )


def test_the_libraries_that_make_bytes_are_named() -> None:
    names = {name for name in identity()["inputs"] if name.startswith("libraries.")}
    assert names >= {f"libraries.{name}" for name in ("numpy", "pyarrow", "pillow", "pillow.libjpeg_turbo")}


def test_copy_detection_names_no_library_that_it_does_not_use() -> None:
    """Neither faiss nor torch is in the extra `pipelines`: their versions cannot be asked for there."""
    searched = identity("copy_detection.extractor=efficientnet-lite0")["inputs"]
    assert searched.keys() - identity()["inputs"].keys() == {"libraries.blas"}


def rows(count: int) -> list[dict[str, object]]:
    return [row_of(Failure(Stage.IMAGES, f"r{number}", Reason.NOT_FOUND, "x")) for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 700])
def test_a_part_is_what_its_entry_says(tmp_path: Path, count: int) -> None:
    entry = write_rows(Folder(str(tmp_path)), "failures/part.parquet", rows(count), FAILURE_SCHEMA)
    data = (tmp_path / "failures" / "part.parquet").read_bytes()
    assert (entry.bytes, entry.sha256, entry.rows) == (len(data), hashlib.sha256(data).hexdigest(), count)
    table = pq.read_table(tmp_path / "failures" / "part.parquet")
    assert table.schema.equals(FAILURE_SCHEMA, check_metadata=True)
    assert table.to_pylist() == rows(count)


def test_each_table_is_a_row_group_and_is_written_before_the_next_is_made(tmp_path: Path) -> None:
    made: list[weakref.ref[pa.Table]] = []

    def groups() -> Iterator[pa.Table]:
        for _ in range(3):
            assert not any(table() for table in made[:-1])  # the ones before are let go
            table = to_table(rows(100), FAILURE_SCHEMA)
            made.append(weakref.ref(table))
            yield table

    write_part(Folder(str(tmp_path)), "part.parquet", groups(), FAILURE_SCHEMA)
    assert pq.ParquetFile(tmp_path / "part.parquet").num_row_groups == 3


def test_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    assert len({write_rows(Folder(str(tmp_path)), name, rows(300), FAILURE_SCHEMA).sha256 for name in "ab"}) == 1


def test_statistics_are_those_of_the_documents_one_by_one() -> None:
    found = summarise({DocumentSize(2, 3, 3): 2, DocumentSize(5, 1, None): 1, DocumentSize(4, 2, 0): 1}, 6)
    assert (found.documents, found.sentences, found.images, found.unique_images) == (4, 13, 9, 6)
    assert (found.median_sentences, found.mean_sentences, found.max_sentences) == (3.0, 3.25, 5)
    assert (found.median_images, found.mean_images, found.max_images) == (2.5, 2.25, 3)
    assert (found.links, found.documents_with_known_links, found.density) == (6, 3, round(1 / 3, 6))


def test_a_split_without_documents_has_no_density() -> None:
    found = summarise({}, 0)
    assert (found.documents, found.median_sentences, found.max_images, found.density) == (0, 0, 0, None)


@pytest.mark.parametrize("store", ["file system", "object store"])
def test_a_failed_rewrite_leaves_the_part_that_was_there(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    far = f"s3://lake/v?{request.getfixturevalue('object_store')}" if store == "object store" else ""
    folder = Folder(far or str(tmp_path))
    entry = write_rows(folder, "failures/part.parquet", rows(3), FAILURE_SCHEMA)

    def groups() -> Iterator[pa.Table]:
        yield to_table(rows(2), FAILURE_SCHEMA)
        assert hashlib.sha256(folder.read("failures/part.parquet")).hexdigest() == entry.sha256
        raise RuntimeError("a worker ends")

    with pytest.raises(RuntimeError):
        write_part(folder, "failures/part.parquet", groups(), FAILURE_SCHEMA)
    assert hashlib.sha256(folder.read("failures/part.parquet")).hexdigest() == entry.sha256
    with pytest.raises(RuntimeError):
        write_part(folder, "failures/other.parquet", groups(), FAILURE_SCHEMA)
    assert list(folder.files()) == ["failures/part.parquet"]
