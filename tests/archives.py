"""Small archives: pictures and what is said of them, as the parts of an index; photographs of an archive in a lake."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from newsroom.archive.index import write_part
from newsroom.archive.records import Picture, Records, write_table
from newsroom.decisions.records import Action, Decision, Objection, Ranking, ShownPicture
from schemas.indexes import FIELDS, FIELDS_SCHEMA, PLACES, PLACES_SCHEMA, WORDS

PHOTOGRAPHS = Path(__file__).parent / "fixtures" / "photographs"
TEXTS = {"headline": "Eine Rakete startet", "caption": "Die Rakete über Florida", "body": "Sie flog.\nSie kam an."}


@dataclass(frozen=True, slots=True)
class Archive:
    """Photographs in a lake, by their names, and what editors could have seen of them and decided."""

    lake: str
    dataset: str
    images: dict[str, str]  # name -> content hash

    def shown(self, texts: dict[str, str] = TEXTS, **values: object) -> Ranking:
        pictures = tuple(ShownPicture(image=image, score=0.5) for image in self.images.values())
        known = {"models": ("models:/m/1",), "pictures": pictures, "dataset": self.dataset, "language": "de"}
        return Ranking(texts=texts, **known | values)

    def decision(self, action: Action, name: str, reason: Objection | None = None, **values: object) -> Decision:
        reason = reason or (Objection.SUBJECT if action is Action.REJECT else None)
        return Decision(action=action, image=self.images[name], reason=reason, **{"dataset": self.dataset} | values)


def write_photographs(folder: Path, said: Mapping[str, Mapping[str, object]]) -> Path:
    """Copy photographs of the fixtures by their names; return the file that says something of each."""
    for name in said:
        shutil.copy(PHOTOGRAPHS / f"{name}.jpg", folder)
    path = folder / "archive.jsonl"
    rows = [{"id": name, "image": f"{name}.jpg", **fields} for name, fields in said.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def key_of(picture: Picture) -> int:
    return int(picture.image[:16], 16)


def fields_of(pictures: Sequence[Picture]) -> pa.Table:
    """Return pictures as rows, values not numbered yet."""
    schema = pa.schema(
        [each.with_type(each.type.value_type) if pa.types.is_dictionary(each.type) else each for each in FIELDS_SCHEMA]
    )
    return pa.Table.from_pylist([_row(picture) for picture in pictures], schema=schema)


def _row(picture: Picture) -> dict[str, object]:
    said = picture.metadata
    row = {name: getattr(said, name) for name in ("title", "caption", "credit", "rights", "date", "place")}
    row |= {name: getattr(picture, name) for name in ("image", "source", "format", "width", "height", "cluster")}
    wide, high = picture.width or 0, picture.height or 0
    orientation = "square" if wide == high else "landscape" if wide > high else "portrait"
    digits = (said.date or "").replace("-", "")
    return row | {
        "key": key_of(picture),
        "licence": picture.licence or said.rights,
        "day": int(digits.ljust(8, "0")) if digits else None,
        "orientation": orientation if wide and high else None,
        "keywords": list(said.keywords),
        "shown_with": picture.shown_with,
    }


def write_records(folder: Path, pictures: Sequence[Picture], parts: int = 1, gone: Sequence[str] = ()) -> Records:
    """Write pictures as some parts of an index, those of `gone` as not in the version any more; open them."""
    names, rows = [], []
    for number in range(parts):
        own = pictures[number::parts]
        name, keys = write_part([fields_of(own)], [np.zeros((len(own), 2), np.float32)], folder)
        names.append(name)
        by_key = {key_of(picture): picture for picture in own}
        rows += [by_key[int(key)] for key in keys]
    places = [
        {"part": None, "part_row": None} if row.image in gone else {"part": row.part, "part_row": row.part_row}
        for row in rows
    ]
    write_table(pa.Table.from_pylist(places, schema=PLACES_SCHEMA), folder / PLACES)
    assert all((folder / name / file).exists() for name in names for file in (FIELDS, WORDS))
    return Records.open([folder / name for name in names], folder / PLACES)
