"""Files in the format Hessel 2019 released, made for a test: things that have a look and a name, a few to a document.

No picture has to be looked at, so that a version is built in seconds; and a model can find the links.
"""

import json
from pathlib import Path

import numpy as np

THINGS, DIMENSIONS, SHOWN = 12, 32, 4
FILES = {"documents": "docs.json", "id2row": "id2row.json", "features": "features.npy"}


def write_released(folder: Path, *, train: int, val: int = 24, test: int = 12) -> list[str]:
    """Write the three files and return the settings of a build that name them; more documents keep the earlier ones."""
    folder.mkdir(parents=True, exist_ok=True)
    looks = np.random.default_rng(0).normal(size=(THINGS, DIMENSIONS))
    features: list[np.ndarray] = []
    id2row: dict[str, int] = {}
    docs: dict[str, list[object]] = {}
    for number, (split, count) in enumerate({"train": train, "val": val, "test": test}.items()):
        random = np.random.default_rng(number + 1)
        docs[split] = []
        for place in range(count):
            images, sentences = [], []
            for position, thing in enumerate(random.permutation(THINGS)[:SHOWN]):
                key = f"{split}{place}_{position}"
                id2row[key] = len(features)
                features.append(looks[thing] + 0.1 * random.normal(size=DIMENSIONS))
                images.append([key, position])
                sentences.append([f"a photo of thing{thing}", position])
            sentences.append([f"this is note {place} of the split {split}", -1])  # else whole texts would leak
            docs[split].append([images, sentences, {"id": f"{split}-{place}"}])
    _replace(folder / FILES["documents"], json.dumps(docs))
    _replace(folder / FILES["id2row"], json.dumps(id2row))
    np.save(folder / "next.npy", np.array(features, np.float32))
    (folder / "next.npy").rename(folder / FILES["features"])
    return [f"source.{name}={folder / file}" for name, file in FILES.items()]


def _replace(path: Path, text: str) -> None:
    path.with_suffix(".part").write_text(text, encoding="utf-8")
    path.with_suffix(".part").rename(path)
