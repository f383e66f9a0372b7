"""An index on this machine: read where it lies, or fetched from an object store; whole, by the digests of its manifest.

Digests are computed once a machine: files of the same size and time are not read again. What was fetched stays in the
cache of the machine (`training/data/mapped.py`) and is shared by its processes.
"""

import shutil
from pathlib import Path

from schemas.errors import IntegrityError
from schemas.indexes import IndexManifest
from schemas.lake import MANIFEST, Folder
from schemas.manifest import FileEntry
from schemas.versions import digest_stream, fingerprint
from training.data.mapped import cache_folder

_WHOLE = "whole"  # a file that says that all others were checked


def read_index_manifest(folder: Folder) -> IndexManifest:
    """Return the manifest of an index.

    Raises:
        FileNotFoundError: there is none.
        IntegrityError: it is none, or of another format.
    """
    return IndexManifest.from_json(folder.read(MANIFEST).decode(), where=folder.uri)


def on_this_machine(folder: Folder, manifest: IndexManifest) -> Path:
    """Return a local folder with all files of an index.

    Raises:
        IntegrityError: one is missing or damaged.
    """
    infos, stamps = folder.infos(), list[object]()
    for entry in manifest.files:
        info = infos.get(entry.path)
        if info is None or info.size != entry.bytes:
            raise _damaged(folder, entry, "missing or cut short")
        stamps.append([entry.path, entry.sha256, info.mtime_ns])
    cache = cache_folder(f"index-{fingerprint([folder.uri, stamps])[:32]}")
    home = Path(folder.local) if folder.local is not None else cache
    if not (cache / _WHOLE).exists():
        for entry in manifest.files:
            path = home / entry.path
            if folder.local is None and not path.exists():
                _fetch(folder, entry.path, path)
            with path.open("rb") as stream:
                if digest_stream(stream) != entry.sha256:
                    raise _damaged(folder, entry, "damaged, by its SHA-256")
        (cache / _WHOLE).touch()
    return home


def _fetch(folder: Folder, name: str, path: Path) -> None:
    """Copy a file; several processes may do so at once."""
    sink = Folder(str(path.parent)).create(path.name)
    with folder.open(name) as stream:
        shutil.copyfileobj(stream, sink.stream, 1 << 20)
    sink.commit()


def _damaged(folder: Folder, entry: FileEntry, what: str) -> IntegrityError:
    return IntegrityError(f"{folder.uri}/{entry.path}: {what}; remove the folder and make the index anew")
