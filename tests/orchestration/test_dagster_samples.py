"""What Dagster's page shows of a version and its links, rendered by another program's reader of Markdown."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

from orchestration.dagster.samples import DOCUMENTS, PICTURES, links_of, sample_of
from schemas.documents import Split
from schemas.lake import MANIFEST, Lake
from schemas.links import LINK_SCHEMA, LinkCounts, LinksManifest
from schemas.manifest import FileEntry

HOSTILE = "![x](https://tracker.example/x.png) | <b>`bold`</b>"
SHOWN = "![x](https://tracker.example/x.png) | &lt;b&gt;'bold'&lt;/b&gt;"


@pytest.fixture
def lake(lakes: ModuleType, tmp_path: Path) -> Lake:
    made = lakes.make_documents(Split.TRAIN, 8, lakes.World())
    first = made.documents[0]
    hostile = replace(first, sentences=(replace(first.sentences[0], text=HOSTILE), *first.sentences[1:]))
    made = replace(made, documents=(hostile, *made.documents[1:]))
    written = lakes.write_lake(str(tmp_path / "lake"), {Split.TRAIN: made}, shards=1, is_rich=True)
    assert isinstance(written, Lake)
    return written


def rendered(text: str) -> tuple[str, list[str]]:
    """Return a page without its pictures, and the addresses of those."""
    page = MarkdownIt("commonmark").enable("table").render(text)
    return re.sub(r"<img [^>]*>", "", page), re.findall(r'<img src="([^"]*)"', page)


def widest_px(address: str) -> int:
    head, _, data = address.partition(",")
    assert head == "data:image/jpeg;base64"
    return max(PIL.Image.open(io.BytesIO(base64.b64decode(data))).size)


def test_a_sample_shows_pictures_and_texts_of_others_as_they_are(lake: Lake) -> None:
    page, pictures = rendered(sample_of(lake, "synthetic@v1"))
    rows = pq.read_table(Path(lake.dataset("synthetic", "v1").uri) / "documents").slice(0, DOCUMENTS).to_pylist()
    assert len(pictures) == sum(min(PICTURES, len(row["images"])) for row in rows)
    assert max(map(widest_px, pictures)) == 128
    assert f"<code>{SHOWN}</code>" in page and "<a " not in page and "<b>" not in page
    assert [f"<code>{row['id']}</code>, {len(row['images'])} pictures" in page for row in rows] == [True] * DOCUMENTS


def test_pictures_without_a_copy_are_left_out(lakes: ModuleType, tmp_path: Path) -> None:
    made = {Split.TEST: lakes.make_documents(Split.TEST, 2, lakes.World())}
    page, pictures = rendered(sample_of(lakes.write_lake(str(tmp_path), made, shards=1), "synthetic@v1"))
    assert pictures == [] and page.count("pictures: ") == 2


def test_links_are_a_table_with_the_surest_of_each_document(lake: Lake, tmp_path: Path) -> None:
    rows = pq.read_table(Path(lake.dataset("synthetic", "v1").uri) / "documents").to_pylist()
    common: dict[str, Any] = {"model": "models:/linker/1", "rank": 1}
    links = [
        {"document": row["id"], "sentence": 0, "image": image, "similarity": 0.9 - place / 10, "probability": 0.8}
        | common
        for place, row in enumerate(rows[:2])
        for image in (1, 0)
    ]
    links[0] |= {"similarity": 0.1, "probability": 0.2}
    links[3] |= {"similarity": 0.95, "probability": None, "word": "weak"}
    page, pictures = rendered(links_of(lake, "synthetic@v1", _written(tmp_path, links)))
    assert len(pictures) == 2 and len(set(pictures)) == 2
    body = page.partition("<tbody>")[2]
    second, first = (re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in body.split("</tr>")[:2])
    assert first == ["0.90", "80%", f"<code>{SHOWN}</code>", "", f"<code>{rows[0]['id']}</code>"]
    assert second[:2] == ["0.95", "weak"] and second[4] == f"<code>{rows[1]['id']}</code>"
    assert links_of(lake, "synthetic@v1", _written(tmp_path, [])) == ""


def _written(folder: Path, links: list[dict[str, Any]]) -> str:
    """Write links of the split train and return their folder."""
    path = "links/train/part-00000-of-00001.parquet"
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(links, LINK_SCHEMA), folder / path)
    data = (folder / path).read_bytes()
    entry = FileEntry(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=len(links))
    counts = {"train": LinkCounts(documents=8, links=len(links), failures={})}
    manifest = LinksManifest(
        model="models:/linker/1", dataset="synthetic@v1", made_by="", precision=None, splits=counts, files=(entry,)
    )
    (folder / MANIFEST).write_text(manifest.to_json())
    return str(folder)
