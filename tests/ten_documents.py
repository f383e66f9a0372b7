"""A folder of ten hand-written documents with drawn pictures: what a user brings to `multilink build documents`."""

import json
from pathlib import Path

from PIL import Image, ImageDraw

COLOURS = ("red", "green", "blue", "orange", "purple", "black", "brown", "navy", "teal", "olive")


def draw_picture(path: Path, seed: int) -> None:
    """Draw a picture unlike those of other seeds."""
    picture = Image.new("RGB", (120 + seed % 7, 90 + seed % 5), "white")
    pen = ImageDraw.Draw(picture)
    for step in range(6):
        left, top = (seed * 37 + step * 53) % 90, (seed * 71 + step * 29) % 60
        pen.ellipse((left, top, left + 10 + (seed * step) % 40, top + 30), fill=COLOURS[(seed + step) % 10])
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


def write_ten(folder: Path) -> Path:
    """Write `documents.jsonl`: ten documents, then a broken line and an empty document; one image is missing."""
    lines = []
    for number in range(10):
        for image in range(3):
            draw_picture(folder / "pictures" / f"{number}-{image}.png", seed=number * 3 + image)
        images = [{"path": f"pictures/{number}-{image}.png"} for image in range(3)]
        if number == 4:
            images.insert(1, {"path": "pictures/missing.png"})
        sentences: list[object] = [f"Step {step} of project {number}." for step in range(3)]
        sentences.append({"text": f"The end of project {number}.", "role": "caption"})
        links = None if number == 9 else [[0, 0], [2, len(images) - 1]]
        record = {"id": f"p{number}", "language": "en", "sentences": sentences, "images": images, "links": links}
        lines.append(json.dumps(record))
    lines.append('{"id": "broken", "sentences": [')
    lines.append(json.dumps({"id": "empty", "sentences": [], "images": []}))
    path = folder / "documents.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
