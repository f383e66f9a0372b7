"""An index, opened: its pictures, their vectors, and the model that made them, which also reads the queries."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from newsroom.archive.confidence import Confidence, read_confidence
from newsroom.archive.parts import on_this_machine
from newsroom.archive.records import Records
from newsroom.archive.vectors import Vectors
from newsroom.archive.words import Words
from schemas.errors import IntegrityError, NotFoundError
from schemas.lake import MANIFEST, Folder
from schemas.links import CELLS, CONFIDENCE, MODEL, PARTS, PLACES, VECTORS, IndexManifest
from training.loop.context import choose_device
from training.model import LinkModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What `search` searches; may be used by several threads.

    Attributes:
        manifest: what it is.
        model: reads the queries.
        confidence: gives results their probability; None: they have none.
        records: the pictures.
        vectors: theirs, row by row.
    """

    manifest: IndexManifest
    model: LinkModel
    confidence: Confidence | None
    records: Records
    vectors: Vectors

    @property
    def words(self) -> Words:
        """Return the words of the pictures' texts."""
        return self.records.words


def open_index(uri: str, check: Callable[[Folder, bytes, IndexManifest, Path], None] | None = None) -> Index:
    """Return the index in a folder; one on an object store is fetched into the cache of this machine first.

    Args:
        uri: of the folder.
        check: raises an error where the index may not be used, by its folder, its manifest as it was read, the same
            parsed, and the folder on this machine.

    Raises:
        NotFoundError: no index is there.
        IntegrityError: it is not whole, or of another release's format.
    """
    folder = Folder(uri if "://" in uri else str(Path(uri).absolute()))
    if not folder.exists(MANIFEST):
        raise NotFoundError(
            f"--index {uri}: expected the folder of an index, found no {MANIFEST}; `multilink index` makes one"
        )
    text = folder.read(MANIFEST)
    try:
        manifest = IndexManifest.from_json(text.decode(), where=uri)
    except IntegrityError as problem:
        raise IntegrityError(f"{problem}; `multilink index` makes it anew") from problem
    home = on_this_machine(folder, manifest)
    if check is not None:
        check(folder, text, manifest, home)
    parts, confidence = [home / PARTS / part for part in manifest.parts], home / CONFIDENCE
    records = Records.open(parts, home / PLACES)
    cells, probes = (home / CELLS, manifest.cells.probes) if manifest.cells else (None, 0)
    return Index(
        manifest=manifest,
        model=LinkModel.load(home / MODEL, choose_device()),
        confidence=read_confidence(confidence) if confidence.is_file() else None,
        records=records,
        vectors=Vectors.open([part / VECTORS for part in parts], records.live, cells, probes),
    )
