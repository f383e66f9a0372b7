"""The demo's documents to be linked: written out of a data set as a user's own files, read back with their links."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest

if TYPE_CHECKING:
    from training.report.examples import ExampleDocument


def export_documents(lake: Lake, reference: str, folder: Path, *, split: Split, count: int) -> Path:
    """Write the first documents of a split as `documents.jsonl` with picture files beside it, links left out."""
    manifest, version = read_manifest(lake, reference)
    lines: list[str] = []
    pictures = folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    for part in manifest.parts("documents", split):
        with version.open(part.path) as stream:
            rows = pq.read_table(stream, columns=["id", "language", "sentences", "images"]).to_pylist()
        with version.open(part.path.replace("documents/", "images/", 1)) as stream:
            jpegs = dict(zip(*pq.read_table(stream, columns=["hash", "jpeg"]).to_pydict().values(), strict=True))
        for row in rows[: count - len(lines)]:
            names = [f"{image['hash'][:16]}.jpg" for image in row["images"]]
            for name, image in zip(names, row["images"], strict=True):
                (pictures / name).write_bytes(jpegs[image["hash"]])
            record = {
                "id": row["id"],
                "language": row["language"],
                "sentences": [sentence["text"] for sentence in row["sentences"]],
                "images": [{"path": f"pictures/{name}"} for name in names],
            }
            lines.append(json.dumps(record, ensure_ascii=False))
    target = folder / "documents.jsonl"
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target


def linked_examples(source: Path, links: Path) -> list[ExampleDocument]:
    """Return the documents of a JSON Lines file with the links predicted for them."""
    from training.report.examples import ExampleDocument

    predicted: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    for row in pq.read_table(links).to_pylist():
        predicted[row["document"]].append((row["sentence"], row["image"], row["similarity"]))
    records = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    return [
        ExampleDocument(
            id=record["id"],
            auc=None,
            sentences=tuple(record["sentences"]),
            images=tuple((source.parent / image["path"]).read_bytes() for image in record["images"]),
            predicted=tuple(predicted[record["id"]]),
            links=None,
        )
        for record in records
    ]
