"""Own documents for tests of commands and programs: coloured shapes, named in words and linked."""

import json
from pathlib import Path

from PIL import Image, ImageDraw

COLOURS, SHAPES = ("red", "green", "blue", "yellow", "black"), ("ellipse", "rectangle", "line")


def write_documents(folder: Path, *, count: int = 24, trained: int = 0, extra: tuple[str, ...] = ()) -> Path:
    """Write documents of three shapes each; where some are to be trained on, the others are for validation."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(count):
        shown = [(COLOURS[(number + place) % 5], SHAPES[(number * 2 + place) % 3]) for place in range(3)]
        for place, (colour, shape) in enumerate(shown):
            picture = Image.new("RGB", (96 + number, 96), "white")
            box = (10 + number % 7, 10 + place * 3, 70, 60 + number % 11)
            getattr(ImageDraw.Draw(picture), shape)(box, fill=colour, **({"width": 9} if shape == "line" else {}))
            picture.save(folder / f"{number}-{place}.png")
        record = {
            "id": f"d{number}",
            "sentences": [f"This is a {colour} {shape} on white." for colour, shape in shown],
            "images": [{"path": f"{number}-{place}.png"} for place in range(3)],
            "links": [[place, place] for place in range(3)],
        }
        lines.append(json.dumps(record | ({"split": "train" if number < trained else "val"} if trained else {})))
    path = folder / "documents.jsonl"
    path.write_text("\n".join([*lines, *extra]) + "\n", encoding="utf-8")
    return path
