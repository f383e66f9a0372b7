"""The lake: a folder, local or on an object store, and the few operations everything on it is made of.

    <lake>/raw/<source>/                        segments of what hosts answered, and their index
    <lake>/images/<method>/                     packs of 256-px copies
    <lake>/features/<extractor>/<fingerprint>/  packs of features
    <lake>/networks/                            graphs of networks, made of their checkpoints
    <lake>/builds/                              drafts of builds under way
    <lake>/datasets/<name>/<version>/           a data set version, real once its manifest.json is there
    <lake>/datasets/<name>/latest               a pointer: the text of a version, swapped atomically
    <lake>/retrievals/<name>/<version>/         when what it was made of was fetched, in this lake
    <lake>/ledger/<name>/<build>/               what a build read, what it rejected included: private
    <lake>/links/<name>/<version>/<model>/      what a model predicts in a version
    <lake>/indexes/<name>/<version>/<model>/    what makes a version's pictures searchable (`schemas.indexes`)

`Folder` hides whether it is on a file system (a path, `file:`) or an object store (`s3:`, `gs:`, `az:`,
`schemas.stores`). Writing is atomic: a file has its old content, or its new one, or does not exist.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import posixpath
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from schemas.messages import ConfigError, IntegrityError, NotFoundError, UsageError
from schemas.stores import (
    FileInfo,
    ObjectFile,
    copy_object,
    delete_objects,
    has_objects,
    list_names,
    list_objects,
    object_info,
    read_object,
    read_range,
    settle_object,
    upload_object,
    write_object,
)

MANIFEST = "manifest.json"
LATEST = "latest"
DRAFTS = "drafts"  # of `builds`: manifests that are not committed
_WRITTEN_AT_ONCE = 1 << 20  # bytes
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_TEMPORARY = re.compile(r"(?:.*/)?\.[^/]+\.[0-9a-f]{32}\.tmp")


def check_name(name: str) -> str:
    """Return the name of a data set.

    Raises:
        ConfigError: it is none: it would be no single folder of a lake, or no command would find it.
    """
    if not _NAME.fullmatch(name):
        rule = "expected up to 100 lower-case letters, digits, `-`, `_` and `.`, a letter or a digit first"
        raise ConfigError(f"data set {name!r}: {rule}")
    return name


def inner_path(path: str) -> str:
    """Return a path that a file names, which is below the folder that it is relative to.

    Raises:
        IntegrityError: it is not: it is absolute, empty, leads upwards, or has another system's separators.
    """
    if "\\" in path or "\0" in path or not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise IntegrityError(f"path {path!r}: expected one below the folder of the file that names it")
    return path


def is_temporary(path: str) -> bool:
    """Return whether a file is one that a process began to write and did not finish; a captured file never is."""
    return _TEMPORARY.fullmatch(path) is not None


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder on any file system; `uri` is what a person or another process can open it by."""

    uri: str

    def child(self, *names: str) -> Folder:
        """Return a folder below; the options of a URI (`s3://bucket/lake?region=...`) stay at its end."""
        path, mark, options = self.uri.partition("?") if "://" in self.uri else (self.uri, "", "")
        return Folder("/".join([path.rstrip("/"), *names]) + mark + options)

    @property
    def local(self) -> Path | None:
        """Return the folder as a local path, or None where it is on an object store."""
        path = unquote(urlsplit(self.uri).path) if self.uri.startswith("file:") else self.uri
        return None if "://" in path else Path(os.path.abspath(path))  # noqa: PTH100 - a tenth of pathlib's time

    def read(self, name: str) -> bytes:
        """Return a file's bytes.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if self.local:
            return (self.local / name).read_bytes()
        data, _ = read_object(self.uri, name)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", f"{self.uri}/{name}")
        return data

    def open(self, name: str) -> BinaryIO:
        """Return a file opened for random reading."""
        if self.local:
            return cast(BinaryIO, pa.OSFile(str(self.local / name)))
        return cast(BinaryIO, ObjectFile(object_info(self.uri, name).size, partial(read_range, self.uri, name)))

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically, with the folders above it; of several processes that write it, the last counts."""
        with self.create(name) as sink:
            sink.stream.write(data)
            sink.commit()

    def settle(self, name: str, data: bytes) -> None:
        """Write a file that several processes may write at once; one that has these bytes is left alone.

        On an object store by conditional requests (`stores.settle_object`), elsewhere by `write`.
        """
        if not self.local:
            settle_object(self.uri, name, data)
        elif not (self.exists(name) and self.read(name) == data):
            self.write(name, data)

    def add(self, name: str, data: bytes) -> bool:
        """Write a file where there is none; return False where there is one. Of several processes one writes it."""
        if not self.local:
            return write_object(self.uri, name, data, version=None)
        with self.create(name) as sink:
            sink.stream.write(data)
            sink.stream.flush()
            os.fsync(sink.stream.fileno())
            try:
                os.link(*cast(tuple[Path, Path], sink.renamed))
            except FileExistsError:
                return False
            return True

    def create(self, name: str) -> Sink:
        """Return a new file to write piece by piece; it appears, whole, when it is committed."""
        if not self.local:
            return Sink(cast(BinaryIO, _Spooled(_WRITTEN_AT_ONCE)), upload=partial(upload_object, self.uri, name))
        target = _made(self.local / name)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        return Sink(_Buffered(io.FileIO(temporary, "xb"), _WRITTEN_AT_ONCE), (temporary, target))

    def link(self, name: str, source: Folder) -> None:
        """Have a file of another folder of the same lake, too, which nobody changes: one file under two names.

        On an object store, and where a file system cannot do so, it is a copy.
        """
        if not (self.local and source.local):
            return copy_object(source.uri, self.uri, name)
        there, here = source.local / name, _made(self.local / name)
        try:
            os.link(there, here)
        except OSError:
            shutil.copyfile(there, here)

    def exists(self, name: str = "") -> bool:
        """Return whether a file or a folder is there; without a name, this folder itself."""
        if self.local:
            return (self.local / name).exists()
        return (bool(name) and self.stamp(name) != (0, 0)) or has_objects(self.child(name).uri)

    def is_folder(self) -> bool:
        """Return whether a folder is there; on an object store, whether anything is below its address."""
        return self.local.is_dir() if self.local else has_objects(self.uri)

    def names(self) -> list[str]:
        """Return the names directly inside, sorted; an absent folder has none."""
        if not self.local:
            return list_names(self.uri)
        return sorted(path.name for path in self.local.iterdir()) if self.local.is_dir() else []

    def files(self) -> Iterator[str]:
        """Return the path of every file below this folder, relative to it, in sorted order."""
        return iter(self.infos())

    def infos(self) -> dict[str, FileInfo]:
        """Return what is known of every file below this folder, by its path relative to it, in sorted order."""
        if not self.local:
            return list_objects(self.uri)
        paths = (Path(folder, name) for folder, _, names in os.walk(self.local) for name in names)
        stats = {path.relative_to(self.local).as_posix(): info for path in paths if (info := _info(path))}
        return dict(sorted(stats.items()))

    def stamp(self, name: str) -> tuple[int, int]:
        """Return the size of a file and when it was written (ns); of a file that is not there, zeros."""
        with contextlib.suppress(FileNotFoundError):
            info = _info(self.local / name) if self.local else object_info(self.uri, name)
            return (info.size, info.mtime_ns) if info else (0, 0)
        return 0, 0

    def move(self, name: str, target: Folder) -> None:
        """Put a file into another folder of the same store, under the same name, in place of one that is there."""
        if not (self.local and target.local):
            return copy_object(self.uri, target.uri, name, moves=True)
        (self.local / name).replace(_made(target.local / name))

    def delete(self, name: str) -> None:
        """Delete a file; an absent one is no error."""
        if not self.local:
            return delete_objects(self.uri, name)
        (self.local / name).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder with everything in it; an absent one is no error."""
        if not self.local:
            return delete_objects(self.uri, *list_objects(self.uri))
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.local)


def _made(path: Path) -> Path:
    """Return a path whose folder is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _info(path: Path) -> FileInfo | None:
    """Return what is known of a file; None: it is gone."""
    with contextlib.suppress(FileNotFoundError):
        stat = path.stat()
        return FileInfo(stat.st_size, stat.st_mtime_ns)
    return None


def folder_of(uri: str) -> tuple[Folder, str]:
    """Return the folder of a file that a path or URI names, and the file's name; options of the URI go with the folder.

    >>> folder_of("s3://bucket/dumps/RS_2018-01.zst?region=eu-west-1")
    (Folder(uri='s3://bucket/dumps?region=eu-west-1'), 'RS_2018-01.zst')
    """
    path, mark, options = uri.partition("?") if "://" in uri else (uri, "", "")
    folder, name = posixpath.split(path)
    return Folder(folder + mark + options), name


@dataclass(frozen=True, slots=True)
class Sink:
    """A file that is being written; what is not committed within a `with` block leaves no trace.

    Attributes:
        stream: takes its bytes.
        renamed: on a file system, its temporary path and its own.
        upload: on an object store, takes it there once it is whole: closing a stream to it would make a half one
            appear, in the place of one that may be there.
    """

    stream: BinaryIO
    renamed: tuple[Path, Path] | None = None
    upload: Callable[[BinaryIO], None] | None = None

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()  # of one that was committed nothing is left to discard

    def commit(self) -> None:
        """Wait until the file is on the disk, or in the store, and give it its name."""
        self.stream.flush()
        if self.upload is not None:
            self.stream.seek(0)
            self.upload(self.stream)
        else:
            os.fsync(self.stream.fileno())
        self.stream.close()
        if self.renamed is not None:
            self.renamed[0].replace(self.renamed[1])

    def discard(self) -> None:
        """Close the file and leave no trace of it."""
        with contextlib.suppress(OSError):  # no room for its last bytes
            self.stream.close()
        if self.renamed is not None:
            self.renamed[0].unlink(missing_ok=True)


class _Uncommitted:
    """A file that is closed when it is freed, as it is where an error ended what wrote it.

    Nobody will read it: that there is no room for its last bytes is nothing to tell (Python 3.13 prints a traceback).
    """

    close: Callable[[], None]

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


class _Buffered(_Uncommitted, io.BufferedWriter):
    """On a file system, under a temporary name; a committed file is closed, and has that name no more."""

    def __del__(self) -> None:
        is_open = not self.closed
        super().__del__()
        if is_open:
            with contextlib.suppress(OSError):
                Path(self.raw.name).unlink(missing_ok=True)  # type: ignore[attr-defined]  # a FileIO


class _Spooled(_Uncommitted, SpooledTemporaryFile[bytes]):
    """For an object store."""


@dataclass(frozen=True, slots=True)
class Lake:
    """The folders of one lake, by role."""

    root: Folder

    @classmethod
    def at(cls, uri: str) -> Lake:
        """Return the lake at a path or URI (it need not exist yet)."""
        if not uri:
            raise UsageError("--lake: expected a path or URI, found nothing")
        return cls(Folder(uri if "://" in uri else str(Path(uri).absolute())))

    @property
    def raw(self) -> Folder:
        return self.root.child("raw")

    @property
    def images(self) -> Folder:
        return self.root.child("images")

    @property
    def features(self) -> Folder:
        return self.root.child("features")

    @property
    def networks(self) -> Folder:
        return self.root.child("networks")

    @property
    def builds(self) -> Folder:
        """Return where builds keep notes for one another: nothing in it is part of a version."""
        return self.root.child("builds")

    def dataset(self, name: str, version: str) -> Folder:
        return self.root.child("datasets", name, version)

    def retrievals(self, name: str, version: str) -> Folder:
        """Return where the times are at which a version's inputs were fetched (`schemas.raw`)."""
        return self.root.child("retrievals", name, version)

    def ledger(self, name: str, build: str) -> Folder:
        """Return where the list is of what a build of a data set read and rejected (`pipelines.ledger`)."""
        return self.root.child("ledger", name, build)

    def links(self, name: str, version: str, model: str, model_version: str) -> Folder:
        """Return where the links go that a registered model's version predicts in a data set version."""
        return self.root.child("links", name, version, f"{model}-{model_version}")

    def index(self, name: str, version: str, model: str) -> Folder:
        """Return where the index of a data set version by a model is, under a name of the model and its version."""
        return self.root.child("indexes", name, version, model)

    def promotions(self, model: str) -> Folder:
        """Return where the statements about a registered model are (`training.promotions.chain`)."""
        return self.root.child("promotions", model)

    def check_exists(self) -> None:
        """Raise a `NotFoundError` where the lake has no folder at all: its address is mistyped, or nothing was built.

        An object store has no folders: there, nothing under its address is no folder.
        """
        if not self.root.exists():
            raise NotFoundError(f"--lake {self.root.uri}: no folder is there; expected a lake that was built in")

    def dataset_names(self) -> list[str]:
        return [name for name in self.root.child("datasets").names() if self.versions(name)]

    def versions(self, name: str) -> list[str]:
        """Return the committed versions of a data set (those with a manifest), sorted by name."""
        folder = self.root.child("datasets", name)
        return [v for v in folder.names() if v != LATEST and folder.child(v).exists(MANIFEST)]

    def references(self) -> list[str]:
        """Return NAME@VERSION of every committed version."""
        return [f"{name}@{version}" for name in self.dataset_names() for version in self.versions(name)]

    def latest(self, name: str) -> str | None:
        """Return the version the `latest` pointer names, or None where none was committed."""
        with contextlib.suppress(FileNotFoundError):
            return self.root.child("datasets", name).read(LATEST).decode().strip()
        return None

    def point_latest(self, name: str, version: str) -> None:
        self.root.child("datasets", name).settle(LATEST, f"{version}\n".encode())

    def find(self, reference: str) -> tuple[str, str]:
        """Return (name, version) of `NAME` (its latest version) or `NAME@VERSION`, which may be cut short.

        Raises:
            UsageError: the reference has another form, or several versions begin so.
            NotFoundError: there is no such lake, data set or version; the message lists what there is.
        """
        name, _, wanted = reference.partition("@")
        check_name(name)
        self.check_exists()
        known = self.versions(name)
        if not known:
            names = ", ".join(self.dataset_names()) or "none"
            raise NotFoundError(f"no data set '{name}' in {self.root.uri}; data sets there: {names}")
        wanted = wanted or self.latest(name) or known[-1]
        found = [wanted] if wanted in known else [version for version in known if version.startswith(wanted)]
        if not found:
            raise NotFoundError(f"no version '{wanted}' of '{name}' in {self.root.uri}; versions: {', '.join(known)}")
        if len(found) > 1:
            raise UsageError(f"version '{wanted}' of '{name}' could be any of {', '.join(found)}; give more of it")
        return name, found[0]
