"""An index, opened: its pictures, their vectors, and the model that made them, which also reads the queries."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pyarrow import fs as pafs

from schemas.errors import IntegrityError, NotFoundError
from schemas.indexes import IndexManifest
from schemas.lake import MANIFEST, Folder
from training.loop.context import choose_device
from training.model import LinkModel
from training.retrieval.build import CELLS, MODEL, RECORDS, VECTORS, WORDS
from training.retrieval.confidence import CONFIDENCE, Confidence, read_confidence
from training.retrieval.records import Records
from training.retrieval.vectors import Vectors
from training.retrieval.words import Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What `search` searches; may be used by several threads.

    Attributes:
        manifest: what it is.
        model: reads the queries.
        confidence: gives results their probability; None: they have none.
        records: the pictures.
        words: of their texts.
        vectors: theirs, row by row.
        copy: folder of the local copy of an index on an object store; None: it is read where it lies.
    """

    manifest: IndexManifest
    model: LinkModel
    confidence: Confidence | None
    records: Records
    words: Words
    vectors: Vectors
    copy: tempfile.TemporaryDirectory[str] | None = None

    def close(self) -> None:
        """Remove the local copy, where there is one; the index is of no use any more."""
        if self.copy is not None:
            self.copy.cleanup()


def open_index(uri: str, check: Callable[[IndexManifest, Path], None] | None = None) -> Index:
    """Return the index in a folder; one on an object store is copied to this machine first.

    Args:
        uri: of the folder.
        check: raises an error where the index may not be used, by its manifest and its folder on this machine.

    Raises:
        NotFoundError: no index is there.
        IntegrityError: it is not whole.
    """
    folder = Folder(uri if "://" in uri else str(Path(uri).absolute()))
    if not folder.exists(MANIFEST):
        raise NotFoundError(
            f"--index {uri}: expected the folder of an index, found no {MANIFEST}; `multilink index` makes one"
        )
    manifest = IndexManifest.from_json(folder.read(MANIFEST).decode(), where=uri)
    infos = folder.infos()
    for entry in manifest.files:
        if entry.path not in infos or infos[entry.path].size != entry.bytes:
            raise IntegrityError(f"{uri}/{entry.path}: missing or cut short; remove the folder and make the index anew")
    copy = None if folder.local is not None else tempfile.TemporaryDirectory(prefix="multilink-index-")
    local = _download(folder, Path(copy.name)) if copy else cast(Path, folder.local)
    if check is not None:
        check(manifest, local)
    confidence = local / CONFIDENCE
    cells = None if manifest.cells is None else local / CELLS
    return Index(
        manifest=manifest,
        model=LinkModel.load(local / MODEL, choose_device()),
        confidence=read_confidence(confidence) if confidence.is_file() else None,
        records=Records(local / RECORDS),
        words=Words.open(local / WORDS),
        vectors=Vectors.open(local / VECTORS, cells, manifest.cells.probes if manifest.cells else 0),
        copy=copy,
    )


def _download(folder: Folder, target: Path) -> Path:
    filesystem, path = folder.opened()
    pafs.copy_files(path, str(target), source_filesystem=filesystem)
    return target
