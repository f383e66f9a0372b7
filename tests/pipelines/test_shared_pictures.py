"""Versions of several shards whose documents share pictures, as training reads them: of every kind of source."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from published import SETTINGS, candidates_of, config_of, draw_all
from shared_pictures import SEVERAL, check_reading
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from pipelines.config import recipe
from pipelines.recipe import BuildConfig
from pipelines.run import build_dataset
from pipelines.sources.corpora.compose import IMAGE_FEATURE
from schemas.lake import Lake
from schemas.manifest import Manifest
from schemas.overrides import override

PLAIN = ("features.images=", "features.sentences=")
DOCUMENTS = 6


def build(config: BuildConfig, root: Path, quiet: Callable[[str], None]) -> tuple[Lake, Manifest]:
    lake = Lake.at(str(root / "lake"))
    manifest = build_dataset(override(config, SEVERAL), lake=lake, say=quiet).manifest
    return lake, manifest


@pytest.mark.parametrize("dataset", sorted(SETTINGS))
def test_published_files(dataset: str, tmp_path: Path, quiet: Callable[[str], None]) -> None:
    root = tmp_path / "images"
    root.mkdir()
    draw_all(candidates_of(config_of(dataset, str(root))), root, different=1)
    lake, manifest = build(config_of(dataset, str(root)), tmp_path, quiet)
    assert sum(split.documents for split in manifest.splits.values()) > 1
    assert check_reading(lake, manifest) > 0


def jpeg(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((60 + seed, 48), 40).convert("RGB").save(buffer, "JPEG")
    return buffer.getvalue()


PICTURE = jpeg(0)


def as_documents(folder: Path) -> None:
    (folder / "a.jpg").write_bytes(PICTURE)
    rows = [{"id": str(n), "sentences": [f"Step {n}."], "images": [{"path": "a.jpg"}]} for n in range(DOCUMENTS)]
    (folder / "documents.jsonl").write_text("\n".join(map(json.dumps, rows)))


def as_mmc4(folder: Path) -> None:
    lines = [
        {
            "text_list": [f"Step {n}."],
            "image_info": [{"image_name": "a.jpg", "raw_url": "http://h/a.jpg"}],
            "url": f"u{n}",
        }
        for n in range(DOCUMENTS)
    ]
    (folder / "docs-0.jsonl").write_text("\n".join(map(json.dumps, lines)))
    tarred(folder / "images-0.tar", {"a.jpg": PICTURE})


def as_obelics(folder: Path) -> None:
    rows = [
        {"images": [None, "http://h/a.jpg"], "texts": [f"Step {n}.", None], "pictures": [None, {"bytes": PICTURE}]}
        for n in range(DOCUMENTS)
    ]
    kinds = {"images": pa.list_(pa.string()), "texts": pa.list_(pa.string()), "pictures": pa.list_(IMAGE_FEATURE)}
    whole = [row | {"pictures": [picture and picture | {"path": None} for picture in row["pictures"]]} for row in rows]
    pq.write_table(pa.Table.from_pylist(whole, schema=pa.schema(list(kinds.items()))), folder / "train-0.parquet")


def as_interleaved(folder: Path) -> None:
    rows = []
    for n in range(DOCUMENTS):
        one = {"sample_id": f"s{n}", "position": 0, "modality": "text", "text_content": f"Step {n}."}
        two = {"sample_id": f"s{n}", "position": 1, "modality": "image", "binary_content": PICTURE}
        rows += [one | {"binary_content": None}, two | {"text_content": None}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "0.parquet")


def as_webdataset(folder: Path) -> None:
    files = {}
    for n in range(DOCUMENTS):
        files |= {f"{n:05d}.txt": f"Step {n}.".encode(), f"{n:05d}.jpg": PICTURE}
    tarred(folder / "00000.tar", files)


def as_hf(folder: Path) -> None:
    rows = [{"text": f"Step {n}.", "image": {"bytes": PICTURE, "path": None}} for n in range(DOCUMENTS)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "train-00000-of-00001.parquet")


def as_web(folder: Path) -> None:
    words = "Cut the boards to the right length with a sharp saw, and take your time, for this cannot be undone later."
    with (folder / "0.warc.gz").open("wb") as stream:
        writer = WARCWriter(stream)
        answers = {"https://h.example/a.jpg": ("image/jpeg", PICTURE)}
        for n in range(DOCUMENTS):
            text = "".join(f"<p>{words} Number {n} and {each}.</p>" for each in range(3))
            page = (
                f"<html lang=en><body><article><h1>A shelf</h1>{text}<img src='/a.jpg'><p>{words}</p></article></body>"
            )
            answers[f"https://h.example/page-{n}"] = ("text/html", page.encode())
        for url, (kind, body) in answers.items():
            headers = StatusAndHeaders("200 OK", [("Content-Type", kind)], protocol="HTTP/1.1")
            record = writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=headers)
            writer.write_record(record)
            record.raw_stream.close()


def as_archive(folder: Path) -> None:
    for n in range(DOCUMENTS):
        (folder / f"{n}.jpg").write_bytes(PICTURE)


def tarred(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


FOLDERS: dict[str, tuple[Callable[[Path], None], Sequence[str]]] = {
    "documents": (as_documents, ["source.documents=documents.jsonl"]),
    "mmc4": (as_mmc4, ["source.documents="]),
    "obelics": (as_obelics, ["source.documents="]),
    "interleaved": (as_interleaved, ["source.documents="]),
    "webdataset": (as_webdataset, ["source.documents="]),
    "hf": (as_hf, ["source.documents="]),
    "web": (as_web, ["source.documents="]),
    "archive": (as_archive, ["source.images="]),
}


@pytest.mark.parametrize("dataset", sorted(FOLDERS))
def test_own_files_and_corpora(dataset: str, tmp_path: Path, quiet: Callable[[str], None]) -> None:
    write, settings = FOLDERS[dataset]
    folder = tmp_path / "files"
    folder.mkdir()
    write(folder)
    named = [
        f"{key}={(folder / value) if value else folder}" for key, _, value in (each.partition("=") for each in settings)
    ]
    lake, manifest = build(override(recipe(dataset), [*named, *PLAIN]), tmp_path, quiet)
    assert sum(split.documents for split in manifest.splits.values()) == DOCUMENTS
    assert check_reading(lake, manifest) > 0


def test_released_feature_rows(tmp_path: Path, quiet: Callable[[str], None]) -> None:
    documents = [[[["i0", 0]], [[f"Step {n}.", 0]], {"id": str(n)}] for n in range(DOCUMENTS)]
    (tmp_path / "docs.json").write_text(json.dumps({"train": documents, "val": documents[:0], "test": []}))
    (tmp_path / "id2row.json").write_text(json.dumps({"i0": 0}))
    np.save(tmp_path / "features.npy", np.ones((1, 4), np.float32))
    files = {"documents": "docs.json", "id2row": "id2row.json", "features": "features.npy"}
    settings = [f"source.{name}={tmp_path / file}" for name, file in files.items()]
    lake, manifest = build(override(recipe("multi-retrieval"), [*settings, "features.sentences="]), tmp_path, quiet)
    assert manifest.splits["train"].documents == DOCUMENTS
    assert check_reading(lake, manifest, has_pictures=False) == DOCUMENTS - 1
