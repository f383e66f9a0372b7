"""One version, built from documents that have everything a format must carry, or have none of it."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from ten_documents import draw_picture

from schemas.lake import Folder, Lake
from schemas.manifest import Manifest

DOCUMENTS = 24


@dataclass(frozen=True)
class Built:
    lake: Lake
    manifest: Manifest
    folder: Folder

    @property
    def reference(self) -> str:
        return f"{self.manifest.dataset}@{self.manifest.version}"


def record(number: int) -> dict[str, Any]:
    """Return a document: every third has known links, every fourth no known place; picture 0 is in all of them."""
    images = [{"path": "pictures/all.png"}, {"path": f"pictures/{number}.png", "licence": "CC0"}]
    if number % 4:
        images = [{**image, "after_sentence": place} for image, place in zip(images, (2, 0), strict=True)]
    return {
        "id": f"d{number:02d}",
        "language": "de" if number % 2 else "en",
        "url": f"https://example.org/{number}",
        "sentences": [
            f"Überschrift {number}: „Ein Haus“",
            {"text": "Two words.", "role": "caption"},
            "End, see <image>.",
        ],
        "images": images,
        "links": ([[1, 0], [2, 1]], [], None)[number % 3],
    }


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    from builds import build

    folder = tmp_path_factory.mktemp("exports")
    for number in range(DOCUMENTS):
        draw_picture(folder / "own" / "pictures" / f"{number}.png", number)
    draw_picture(folder / "own" / "pictures" / "all.png", 99)
    path = folder / "own" / "documents.jsonl"
    path.write_text("".join(json.dumps(record(number)) + "\n" for number in range(DOCUMENTS)), encoding="utf-8")
    lake = Lake.at(str(folder / "lake"))
    summary = build(path, lake, "shards.documents=4", "features.images=colour-shape")
    return Built(lake, summary.manifest, Folder(summary.path))
