"""The same small documents in the form of several sources: colours, each named by a sentence and seen in a picture."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from corpus_files import write_tar
from PIL import Image

from pipelines.sources.corpora.compose import IMAGE_FEATURE

COLOURS = {
    "red": (200, 30, 30), "green": (30, 160, 40), "blue": (30, 60, 200), "yellow": (230, 210, 30),
    "black": (20, 20, 20), "white": (240, 240, 240), "purple": (120, 30, 140), "orange": (240, 130, 20),
}  # fmt: skip
IN_A_DOCUMENT = 3


@dataclass(frozen=True, slots=True)
class Written:
    """A document: its sentences and the bytes of its pictures, the first of one with the first of the other."""

    name: str
    sentences: tuple[str, ...]
    pictures: tuple[bytes, ...]


def draw_documents(count: int, *, are_shared: bool) -> list[Written]:
    """Return documents of three colours each; pictures of one colour are the same file, or none is like another."""
    found = []
    for number in range(count):
        colours = random.Random(number).sample(list(COLOURS), IN_A_DOCUMENT)  # no other matching is as consistent
        pictures = (_picture(colour, 0 if are_shared else 10 * number + place) for place, colour in enumerate(colours))
        texts = tuple(f"Step {number}: paint the board {colour}." for colour in colours)
        found.append(Written(f"d{number}", texts, tuple(pictures)))
    return found


def _picture(colour: str, seed: int) -> bytes:
    """Return a JPEG of noise about a colour."""
    noise = np.random.default_rng(seed).normal(0, 25, (64, 80, 3))
    pixels = np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def as_documents(documents: Sequence[Written], folder: Path) -> str:
    rows = []
    for each in documents:
        paths = [f"{each.name}-{place}.jpg" for place in range(len(each.pictures))]
        for path, data in zip(paths, each.pictures, strict=True):
            (folder / path).write_bytes(data)
        links = [[place, place] for place in range(len(paths))]
        images = [{"path": path} for path in paths]
        rows.append({"id": each.name, "sentences": each.sentences, "images": images, "links": links})
    (folder / "documents.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(folder / "documents.jsonl")


def as_mmc4(documents: Sequence[Written], folder: Path) -> str:
    lines, files = [], {}
    for each in documents:
        shown = {f"{each.name}-{place}.jpg": data for place, data in enumerate(each.pictures)}
        images = [{"image_name": name, "raw_url": f"http://h.example/{name}"} for name in shown]
        lines.append({"text_list": each.sentences, "image_info": images, "url": f"http://h.example/{each.name}"})
        files |= shown
    write_tar(folder / "images-0.tar", files)
    (folder / "docs-0.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return str(folder)


def as_obelics(documents: Sequence[Written], folder: Path) -> str:
    rows = []
    for each in documents:
        texts, addresses, pictures = [], [], []
        for place, (text, data) in enumerate(zip(each.sentences, each.pictures, strict=True)):
            texts += [text, None]
            addresses += [None, f"http://h.example/{each.name}-{place}.jpg"]
            pictures += [None, {"bytes": data, "path": None}]
        rows.append({"texts": texts, "images": addresses, "pictures": pictures})
    kinds = {"texts": pa.list_(pa.string()), "images": pa.list_(pa.string()), "pictures": pa.list_(IMAGE_FEATURE)}
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items()))), folder / "train-0.parquet")
    return str(folder)


def as_interleaved(documents: Sequence[Written], folder: Path) -> str:
    rows = []
    for each in documents:
        for place, (text, data) in enumerate(zip(each.sentences, each.pictures, strict=True)):
            of_both = {"sample_id": each.name}
            says = {"modality": "text", "text_content": text, "binary_content": None}
            shows = {"modality": "image", "text_content": None, "binary_content": data}
            rows += [of_both | says | {"position": 2 * place}, of_both | shows | {"position": 2 * place + 1}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "0.parquet")
    return str(folder)


def as_hf(documents: Sequence[Written], folder: Path) -> str:
    rows = [
        {"text": list(each.sentences), "image": [{"bytes": data, "path": None} for data in each.pictures]}
        for each in documents
    ]
    kinds = {"text": pa.list_(pa.string()), "image": pa.list_(IMAGE_FEATURE)}
    table = pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))
    pq.write_table(table, folder / "all-00000-of-00001.parquet")
    return str(folder)


WRITERS: dict[str, Callable[[Sequence[Written], Path], str]] = {
    "documents": as_documents,
    "mmc4": as_mmc4,
    "obelics": as_obelics,
    "interleaved": as_interleaved,
    "hf": as_hf,
}
