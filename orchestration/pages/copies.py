"""The copies of pictures that a lake's data sets hold, read at random.

A part of a version is one block of Parquet, which cannot be read picture by picture. When the first of a part is asked
for, the pictures of that part are checked and written to a scratch file, which is mapped into memory from then on.
"""

import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from schemas.errors import NotFoundError
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest
from schemas.parts import read_part

TABLE = "images"


@dataclass(frozen=True, slots=True)
class _Part:
    rows: Mapping[str, int]
    jpegs: pa.ChunkedArray


class Copies:
    """The pictures of a lake; may be used by several threads."""

    def __init__(self, lake: Lake) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="multilink-pages-")
        self._parts: dict[tuple[str, str], _Part] = {}
        self._reading = threading.Lock()
        self._version = lru_cache(64)(lambda reference: _version(lake, reference))

    def jpeg(self, reference: str, part: str, image: str) -> bytes:
        """Return the bytes of a picture's copy.

        Args:
            reference: NAME@VERSION.
            part: path of the images part that holds it, as the manifest has it.
            image: content hash.

        Raises:
            NotFoundError: there is no such version, part or picture, or the version has no copy of it.
            IntegrityError: the part is damaged.
        """
        if (reference, part) not in self._parts:
            with self._reading:
                if (reference, part) not in self._parts:
                    self._parts[reference, part] = self._read(reference, part)
        found = self._parts[reference, part]
        if image not in found.rows or (jpeg := found.jpegs[found.rows[image]].as_py()) is None:
            raise NotFoundError(f"{reference}, {part}: no copy of picture {image[:16]}")
        data: bytes = jpeg
        return data

    def close(self) -> None:
        """Remove the scratch files."""
        self._parts.clear()
        self._scratch.cleanup()

    def _read(self, reference: str, part: str) -> _Part:
        manifest, folder = self._version(reference)
        splits = (manifest.parts(TABLE, split) for split in manifest.splits)
        entry = next((each for parts in splits for each in parts if each.path == part), None)
        if entry is None:
            raise NotFoundError(f"{reference}: no part {part!r} of images")
        table = read_part(folder, entry, ("hash", "jpeg"))
        path = Path(self._scratch.name, f"{len(self._parts):06d}.arrow")
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=1024)
        mapped = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        rows = {key: row for row, key in enumerate(mapped.column("hash").to_pylist())}
        return _Part(rows, mapped.column("jpeg"))


def _version(lake: Lake, reference: str) -> tuple[Manifest, Folder]:
    return read_manifest(lake, reference)
