"""Documents leave in every format, twice with the same bytes, and the readers of those projects read them.

What leaves in a format comes back as the same documents, by one command.
"""

import io
import json
import tarfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
import webdataset
from builds import PLAIN, build_of, quiet, tree
from lake_bytes import bytes_of
from PIL import Image
from shared_pictures import SEVERAL, check_reading
from typer.testing import CliRunner

from orchestration.cli import app
from pipelines.exports.export import EXPORT, NAMES, export_version
from pipelines.exports.formats import FORMATS
from pipelines.exports.reading import ShownDocument, read_shard, shards_of
from pipelines.forgetting.forget import forget
from pipelines.forgetting.holdings import find_holdings
from pipelines.sources.takedowns import read_takedowns
from schemas.documents import document_schema
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest
from schemas.messages import UsageError

Documents = dict[str, ShownDocument]


def documents_of(manifest: Manifest, folder: Folder) -> Documents:
    return {each.row["id"]: each for shard in shards_of(manifest) for each in read_shard(shard, folder)}


@pytest.fixture(scope="module")
def documents(built: Any) -> Documents:
    return documents_of(built.manifest, built.folder)


@pytest.fixture
def exported(built: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    if request.param == "lance":
        pytest.importorskip("lance", reason="pylance is not installed")
    export_version(built.manifest, built.folder, Folder(str(tmp_path / "out")), form=request.param, say=quiet)
    return tmp_path / "out"


def of_format(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("exported", [name], indirect=True)


def decoded(jpeg: bytes) -> bytes:
    return Image.open(io.BytesIO(jpeg)).convert("RGB").tobytes()


def layout(document: ShownDocument) -> tuple[list[str | None], list[int | None]]:
    """Return texts and image numbers as a person would set the page."""
    texts, places = [s["text"] for s in document.row["sentences"]], document.row["after_sentence"]
    pieces: list[tuple[float, int, str | None, int | None]] = [
        (number + 1, 0, text, None) for number, text in enumerate(texts)
    ]
    for number in range(len(document.pictures)):
        place = None if places is None else places[number]
        pieces.append((len(texts) + 1 if place is None else place + 0.5, number, None, number))
    pieces.sort(key=lambda piece: piece[:2])
    return [piece[2] for piece in pieces], [piece[3] for piece in pieces]


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_has_the_same_bytes_twice(built: Any, tmp_path: Path, name: str) -> None:
    for folder in ("first", "second"):
        export_version(built.manifest, built.folder, Folder(str(tmp_path / folder)), form=name, say=quiet)
    first = tree(tmp_path / "first")
    assert tree(tmp_path / "second") == first
    export = json.loads(first.pop(EXPORT))
    assert {entry["path"]: entry["bytes"] for entry in export["files"]} == {p: len(b) for p, b in first.items()}
    assert "README.md" in first


def test_a_folder_that_is_not_empty_is_left_alone(built: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"expected an empty folder, found thesis\.txt"):
        export_version(built.manifest, built.folder, Folder(str(tmp_path)), form="hf", say=quiet)
    with pytest.raises(UsageError, match="expected an empty folder, found a file"):
        export_version(built.manifest, built.folder, Folder(str(tmp_path / "thesis.txt")), form="hf", say=quiet)
    with pytest.raises(UsageError, match="expected one of mmc4, obelics, webdataset, hf, lance"):
        export_version(built.manifest, built.folder, Folder(str(tmp_path / "x")), form="arrow", say=quiet)
    assert tree(tmp_path) == {"thesis.txt": b"mine"}


@of_format("mmc4")
def test_mmc4_has_the_published_fields_and_its_pictures_by_name(exported: Path, documents: Documents) -> None:
    seen = set()
    for path in sorted(exported.glob("docs-*.jsonl")):
        with tarfile.open(exported / path.name.replace("docs-", "images-").replace(".jsonl", ".tar")) as archive:
            names = archive.getnames()
            assert names == sorted(set(names))
            pictures = {name: archive.extractfile(name).read() for name in names}  # type: ignore[union-attr]
        for line in path.read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            document = documents[found["multilink"]["id"]]
            seen.add(found["multilink"]["id"])
            assert found["text_list"] == [sentence["text"] for sentence in document.row["sentences"]]
            assert found["url"] == document.row["provenance"]["url"]
            assert [pictures[each["image_name"]] for each in found["image_info"]] == [
                picture["jpeg"] for picture in document.pictures
            ]
            links = document.row["links"]
            pairs = {(link["image"], link["sentence"]) for link in links or ()}
            cells = [[float((image, text) in pairs) for text in range(3)] for image in range(2)]
            assert found["similarity_matrix"] == cells
            told = [(x["matched_text_index"], x["matched_sim"], x["face_detections"]) for x in found["image_info"]]
            assert told == ([(1, 1.0, None), (2, 1.0, None)] if links else [(0, 0.0, None)] * 2)
    assert seen == documents.keys()


@of_format("obelics")
def test_obelics_is_two_parallel_lists_that_datasets_shows_with_pictures(exported: Path, documents: Documents) -> None:
    loaded = datasets.load_dataset(str(exported), cache_dir=str(exported.parent / "cache"))
    rows = [row for split in loaded.values() for row in split]
    assert {json.loads(row["multilink"])["id"] for row in rows} == documents.keys()
    for row in rows:
        document = documents[json.loads(row["multilink"])["id"]]
        texts, images = layout(document)
        assert (row["texts"], row["image_index"]) == (texts, images)
        for place, image in enumerate(images):
            picture = None if image is None else document.pictures[image]
            assert row["images"][place] == (picture and picture["source"])
            shown = row["pictures"][place]
            assert (shown and shown.convert("RGB").tobytes()) == (picture and decoded(picture["jpeg"]))
            details = json.loads(row["metadata"])[place]
            assert (details and details["original_width"]) == (picture and picture["width"])


@of_format("webdataset")
def test_webdataset_reads_samples_with_their_pictures(exported: Path, documents: Documents) -> None:
    shards = sorted(str(path) for path in exported.glob("*.tar"))
    samples = list(webdataset.WebDataset(shards, shardshuffle=False).decode("pil"))
    assert {sample["json"]["multilink"]["id"] for sample in samples} == documents.keys()
    for sample in samples:
        document = documents[sample["json"]["multilink"]["id"]]
        texts, images = layout(document)
        names = [None if image is None else f"{image}.jpg" for image in images]
        told = {name: sample["json"][name] for name in ("texts", "images", "image_index")}
        assert told == {"texts": texts, "images": names, "image_index": images}
        for number, picture in enumerate(document.pictures):
            assert sample[f"{number}.jpg"].convert("RGB").tobytes() == decoded(picture["jpeg"])


@of_format("hf")
def test_datasets_loads_a_row_a_document_with_its_pictures_decoded(exported: Path, documents: Documents) -> None:
    loaded = datasets.load_dataset(str(exported), cache_dir=str(exported.parent / "cache"))
    assert set(loaded) == {"train", "val", "test"}
    assert loaded["train"].features["images"] == datasets.List(datasets.Image())
    rows = {row["id"]: row for split in loaded.values() for row in split}
    assert rows.keys() == documents.keys()
    for name, row in rows.items():
        document = documents[name]
        columns = ("language", "split", "sentences", "links", "after_sentence", "provenance")
        assert {each: row[each] for each in columns} == {each: document.row[each] for each in columns}
        assert row["image_licences"] == [None, "CC0"]
        shown = [picture.convert("RGB").tobytes() for picture in row["images"]]
        assert shown == [decoded(picture["jpeg"]) for picture in document.pictures]


@of_format("lance")
def test_lance_reads_the_rows(exported: Path, documents: Documents) -> None:
    lance = pytest.importorskip("lance", reason="pylance is not installed")
    tables = [lance.dataset(str(exported / f"{split}.lance")).to_table() for split in ("train", "val", "test")]
    found = {row["id"]: row for table in tables for row in table.to_pylist()}
    assert found.keys() == documents.keys()
    for name, row in found.items():
        assert row["links"] == documents[name].row["links"]
        assert [each["bytes"] for each in row["images"]] == [each["jpeg"] for each in documents[name].pictures]


def test_datasets_shows_the_pictures_of_the_data_set_itself(built: Any, tmp_path: Path) -> None:
    loaded = datasets.load_dataset(built.folder.uri, "images", cache_dir=str(tmp_path))
    stored = pq.read_table(sorted(Path(built.folder.uri, "images", "train").iterdir())[0])
    shown = {row["hash"]: row["jpeg"] for row in loaded["train"]}
    for row in stored.select(["hash", "jpeg"]).to_pylist():
        assert shown[row["hash"]].convert("RGB").tobytes() == decoded(row["jpeg"])


def test_the_command_says_what_it_wrote(built: Any, tmp_path: Path) -> None:
    arguments = ["datasets", "export", "documents", str(tmp_path / "out"), "--to", "hf", "--json"]
    result = CliRunner().invoke(app, [*arguments, "--lake", built.lake.root.uri])
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout.splitlines()[-1])
    assert (values["format"], values["version"]) == ("hf", built.manifest.version)
    assert set(NAMES) == {*FORMATS, "lance"}


def test_a_killed_export_lacks_its_last_file_and_is_not_continued(
    built: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Folder(str(tmp_path))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("pipelines.exports.export.render", Mock(side_effect=KeyboardInterrupt))
        export_version(built.manifest, built.folder, target, form="hf", say=quiet)
    left = tree(tmp_path)
    assert left and EXPORT not in left
    with pytest.raises(UsageError, match=r"expected an empty folder, found .*unfinished export"):
        export_version(built.manifest, built.folder, target, form="hf", say=quiet)
    assert tree(tmp_path) == left


@pytest.mark.parametrize("form", ["webdataset", "lance"])
def test_an_export_goes_to_a_bucket(built: Any, object_store: str, form: str) -> None:
    if form == "lance":
        pytest.importorskip("lance", reason="pylance is not installed")
    target = Lake.at(f"s3://lake/exports/{form}?{object_store}").root
    export = export_version(built.manifest, built.folder, target, form=form, say=quiet)
    assert {*target.files()} == {EXPORT, *(entry.path for entry in export.files)}
    with pytest.raises(UsageError, match="expected an empty folder"):
        export_version(built.manifest, built.folder, target, form=form, say=quiet)


KEPT = [name for name in document_schema().names if name not in ("dataset", "images")]


def pixels(jpeg: bytes) -> Any:
    with Image.open(io.BytesIO(jpeg)) as picture:
        return np.asarray(picture.convert("RGB"), np.float32)


@pytest.mark.parametrize("form", ["mmc4", "obelics", "webdataset", "hf"])
def test_documents_come_back_equal(built: Any, documents: Documents, tmp_path: Path, form: str) -> None:
    export_version(built.manifest, built.folder, Folder(str(tmp_path / "out")), form=form, say=quiet)
    lake = Lake.at(str(tmp_path / "lake"))
    summary = build_of(form, lake, f"source.documents={tmp_path / 'out'}", *PLAIN, *SEVERAL)
    after = documents_of(summary.manifest, Folder(summary.path))
    assert summary.manifest.failures == {}
    assert after.keys() == documents.keys()
    for name, document in after.items():
        assert {key: document.row[key] for key in KEPT} == {key: documents[name].row[key] for key in KEPT}
        for stated in ("licence", "source"):
            assert [each[stated] for each in document.pictures] == [each[stated] for each in documents[name].pictures]
        for new, old in zip(document.pictures, documents[name].pictures, strict=True):
            found, expected = pixels(new["jpeg"]), pixels(old["jpeg"])
            assert found.shape == expected.shape
            assert np.abs(found - expected).mean() < 2  # a JPEG of a JPEG
    assert check_reading(lake, summary.manifest) > 0  # one picture is in all of them


@pytest.mark.parametrize("form", ["mmc4", "obelics", "webdataset", "hf"])
def test_a_picture_that_is_taken_down_by_its_original_is_in_no_copy(
    built: Any, documents: Documents, tmp_path: Path, form: str
) -> None:
    export_version(built.manifest, built.folder, Folder(str(tmp_path / "out")), form=form, say=quiet)
    lake, listed = Lake.at(str(tmp_path / "lake")), tmp_path / "list.txt"
    number = [image["source"] for image in documents["d07"].row["images"]].index("pictures/7.png")
    listed.write_text(documents["d07"].row["images"][number]["hash"])
    settings = (f"source.documents={tmp_path / 'out'}", *PLAIN)
    before = build_of(form, lake, *settings).manifest
    (held,) = find_holdings(lake, read_takedowns(listed)).holdings
    assert (held.version, held.documents, len(held.images)) == (before.version, (), 1)
    after = build_of(form, lake, *settings, f"takedown_list={listed}", "documents.min_images=2")
    assert after.manifest.failures == {"taken-down": 1, "too-few-images": 1}
    assert documents_of(after.manifest, Folder(after.path)).keys() == documents.keys() - {"d07"}
    forget(lake, read_takedowns(listed), dry_run=False, say=quiet)
    assert not any(listed.read_bytes() in data for data in bytes_of(lake).values())
