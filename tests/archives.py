"""Small archives: pictures with what is said of them, as the parts of an index."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from newsroom.archive.index import write_part
from newsroom.archive.records import Picture, Records, write_table
from schemas.links import FIELDS, FIELDS_SCHEMA, PLACES, PLACES_SCHEMA, WORDS


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
