"""Corpora of other projects to versions: what their files say of documents and pictures is what the shards hold."""

from __future__ import annotations

import io
import json
import tarfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
from PIL import Image
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from pipelines.config import recipe
from pipelines.run import build_dataset
from pipelines.sources.corpora.compose import extras_of
from schemas.document_rows import to_row
from schemas.documents import (
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
from schemas.errors import BuildError
from schemas.lake import Lake
from schemas.overrides import override

WORDS = "Cut the boards to the right length with a sharp saw, and take your time, for this cannot be undone later."
DOCUMENTS = [
    Document(
        id=f"doc-{number}",
        dataset="before",
        sentences=(Sentence("Cut.", Role.BODY), Sentence("Sand them. Twice."), Sentence("Glue.", Role.CAPTION)),
        images=(ImageRef(f"{number}a", f"https://h.example/{number}/a.jpg"), ImageRef(f"{number}b", "b.jpg")),
        links=(Link(2, 0), Link(0, 1)) if number else None,
        provenance=Provenance("before", f"record-{number}", f"https://h.example/{number}", "CC0"),
        language="de",
        split=Split.VAL if number == 1 else Split.TRAIN,
        after_sentence=(3, 1),
        given=Given((GivenLink(2, 0, 0.5), GivenLink(1, 1, None)), (0.25, 0.125, 0.5, 0.0, 1.0, 0.75)),
    )
    for number in range(6)
]  # fmt: skip


def jpeg(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((60 + seed, 48), 40 + seed).convert("RGB").save(buffer, "JPEG")
    return buffer.getvalue()


def build(dataset: str, source: Path, lake: Path, quiet: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Build a version by the settings of one command, and return its documents by id."""
    settings = [f"source.documents={source}", "features.images=", "features.sentences="]
    config = override(recipe(dataset), settings)
    summary = build_dataset(config, lake=Lake.at(str(lake)), say=quiet)
    rows: dict[str, dict[str, Any]] = {}
    for split in Split:
        for entry in summary.manifest.parts("documents", split):
            shown = pq.read_table(Path(summary.path) / entry.path.replace("documents/", "images/", 1))
            pictures = dict(zip(shown["hash"].to_pylist(), shown.drop("metadata").to_pylist(), strict=True))
            for row in pq.read_table(Path(summary.path) / entry.path).to_pylist():
                rows[row["id"]] = row | {"pictures": [pictures[image["hash"]] for image in row["images"]]}
    return rows


def exported(document: Document) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a document's row and what goes beside it in another format."""
    row = json.loads(json.dumps(to_row(document)))
    return row, extras_of(row, {image.hash: {"licence": "CC0", "metadata": None} for image in document.images})


def tarred(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def as_mmc4(folder: Path) -> None:
    for part, documents in enumerate((DOCUMENTS[:3], DOCUMENTS[3:])):
        lines, pictures = [], {}
        for document in documents:
            row, extras = exported(document)
            shown = [{"image_name": f"{image.hash}.jpg", "raw_url": image.source} for image in document.images]
            pictures |= {f"{image.hash}.jpg": jpeg(int(image.hash, 16) % 90) for image in document.images}
            texts = [sentence["text"] for sentence in row["sentences"]]
            lines.append(json.dumps({"text_list": texts, "image_info": shown, "multilink": extras, "url": "u"}))
        (folder / f"docs-train-{part:05d}-of-00002.jsonl").write_text("\n".join(lines))
        tarred(folder / f"images-train-{part:05d}-of-00002.tar", pictures)


@pytest.mark.parametrize("has_ids", [False, True])
def test_shards_of_one_name_in_several_folders_are_all_read(
    has_ids: bool, tmp_path: Path, quiet: Callable[[str], None]
) -> None:
    """`save_to_disk` names the shards of each split alike, and numbers of rows begin anew in each."""
    splits = {}
    for number, name in enumerate(("train", "validation", "test")):
        rows = [
            {"id": row, "image": {"bytes": jpeg(20 * number + row), "path": None}, "text": f"A {row} of {name}."}
            for row in range(20)
        ]
        features = datasets.Features(
            {"id": datasets.Value("int32"), "image": datasets.Image(), "text": datasets.Value("string")}
        )
        made = datasets.Dataset.from_list(rows, features=features)
        splits[name] = made if has_ids else made.remove_columns("id")
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "all"))
    rows = build("hf", tmp_path / "all", tmp_path / "lake", quiet)
    assert Counter(row["split"] for row in rows.values()) == {"train": 20, "val": 20, "test": 20}
    assert "train/data-00000-of-00001.arrow:7" in rows
    assert rows["test/data-00000-of-00001.arrow:7"]["provenance"]["record_id"] == (
        "7" if has_ids else "test/data-00000-of-00001.arrow:7"
    )


def test_records_of_one_id_and_other_content_count_as_failed(tmp_path: Path, quiet: Callable[[str], None]) -> None:
    (tmp_path / "a.png").write_bytes(jpeg(1))
    lines = [json.dumps({"id": "same", "sentences": [text], "images": [{"path": "a.png"}]}) for text in "AABC"]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    config = override(recipe("documents"), [f"source.documents={tmp_path}", "features.images=", "features.sentences="])
    with pytest.raises(BuildError, match="documents: 2 of 4 failed"):
        build_dataset(
            replace(config, max_failure_share=0.4),
            lake=Lake.at(str(tmp_path / "lake")),
            say=quiet,
        )
    summary = build_dataset(config, lake=Lake.at(str(tmp_path / "lake")), say=quiet)
    assert summary.manifest.failures == {"duplicate-record": 1, "id-taken": 2}


def test_a_directory_of_warc_files_becomes_a_version(tmp_path: Path, quiet: Callable[[str], None]) -> None:
    folder = tmp_path / "crawl"
    folder.mkdir()
    for number in range(3):
        page = f"https://site-{number}.example/page"
        text = "".join(f"<p>{WORDS} Number {each}.</p>" for each in range(3))
        body = f"<article><h1>A shelf</h1>{text}<img src='/1.jpg'><p>{WORDS}</p></article>"
        html = f"<html lang=en><body>{body}</body></html>"
        with (folder / f"{number}.warc.gz").open("wb") as stream:
            writer = WARCWriter(stream)
            for url, kind, body in (
                (page, "text/html", html.encode()),
                (page[:-4] + "1.jpg", "image/jpeg", jpeg(number)),
            ):
                headers = StatusAndHeaders("200 OK", [("Content-Type", kind)], protocol="HTTP/1.1")
                record = writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=headers)
                writer.write_record(record)
                record.raw_stream.close()
    rows = build("web", folder, tmp_path / "lake", quiet)
    assert rows.keys() == {f"https://site-{number}.example/page" for number in range(3)}
    for number in range(3):
        row = rows[f"https://site-{number}.example/page"]
        assert len(row["sentences"]) == 8
        assert (row["after_sentence"], row["language"]) == ([7], "en")
        assert row["images"][0]["source"] == f"https://site-{number}.example/1.jpg"
        assert row["pictures"][0]["width"] == 60 + number


def test_a_picture_that_is_embedded_goes_by_the_address_it_came_from(
    tmp_path: Path, quiet: Callable[[str], None]
) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    as_mmc4(shards)
    listed = tmp_path / "takedowns.txt"
    listed.write_text("url: https://h.example/2/a.jpg\n")
    settings = [f"source.documents={shards}", "features.images=", "features.sentences=", f"takedown_list={listed}"]
    config = override(recipe("mmc4"), settings)
    summary = build_dataset(config, lake=Lake.at(str(tmp_path / "lake")), say=quiet)
    assert summary.manifest.failures == {"taken-down": 1}
    documents = [
        row
        for entry in summary.manifest.parts("documents", Split.TRAIN)
        for row in pq.read_table(Path(summary.path) / entry.path).to_pylist()
    ]
    (row,) = [row for row in documents if row["id"] == "doc-2"]
    assert [image["source"] for image in row["images"]] == ["b.jpg"]
    assert row["given_links"] == [{"sentence": 1, "image": 0, "similarity": None}]
    assert row["given_similarities"] == [0.125, 0.0, 0.75]
