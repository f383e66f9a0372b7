"""The lake: a folder, local or on an object store, and the few operations everything on it is made of.

    <lake>/raw/<source>/                        segments of what hosts answered, and their index
    <lake>/images/<method>/                     packs of 256-px copies
    <lake>/features/<extractor>/<fingerprint>/  packs of features
    <lake>/networks/                            graphs of networks, made of their checkpoints
    <lake>/builds/                              which version a request gave, drafts of builds under way
    <lake>/datasets/<name>/<version>/           a data set version, real once its manifest.json is there
    <lake>/datasets/<name>/latest               a pointer: the text of a version, swapped atomically
    <lake>/retrievals/<name>/<version>/         when what it was made of was fetched, in this lake
    <lake>/ledger/<name>/<build>/               what a build read, what it rejected included: private
    <lake>/links/<name>/<version>/<model>/      what a model predicts in a version (`schemas.links`)
    <lake>/indexes/<name>/<version>/<model>/    what makes a version's pictures searchable (`schemas.indexes`)

`Folder` hides which file system it is (anything `pyarrow.fs` opens: a path, `file:`, `s3:`, `gs:`, `hdfs:`). Writing is
atomic: a file has its old content, or its new one, or does not exist.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

import pyarrow.fs as pafs

from schemas.errors import ConfigError, IntegrityError, NotFoundError, UsageError
from schemas.stores import (
    S3,
    delete_object,
    has_client,
    open_store,
    read_object,
    read_piece,
    settle_object,
    upload_object,
    write_object,
)

MANIFEST = "manifest.json"
LATEST = "latest"
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
        """Return the folder as a local path, or None where it is on another kind of store."""
        filesystem, path = self.opened()
        return Path(path) if isinstance(filesystem, pafs.LocalFileSystem) else None

    def read(self, name: str) -> bytes:
        """Return a file's bytes.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if self._has_client:  # one request, where pyarrow asks for its size first
            if (found := read_object(self.uri, name)) is None:
                raise FileNotFoundError(f"{self.uri}/{name}: there is no such object")
            return found[0]
        filesystem, path = self.opened()
        with filesystem.open_input_file(f"{path}/{name}") as stream:
            return cast(bytes, stream.read(stream.size()))  # one request to a store, not one for 256 kB

    def read_end(self, name: str, count: int) -> tuple[bytes, int]:
        """Return at most so many bytes of a file's end, and how many it has; one request to S3.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if self._has_client:
            return read_piece(self.uri, name, f"-{count}")
        with self.open(name) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - count))
            return stream.read(min(size, count)), size

    def read_piece(self, name: str, start: int, count: int) -> bytes:
        """Return at most so many bytes of a file, from one on that it has; one request to S3."""
        if self._has_client:
            return read_piece(self.uri, name, f"{start}-{start + count - 1}")[0]
        with self.open(name) as stream:
            stream.seek(start)
            return stream.read(count)

    def open(self, name: str) -> BinaryIO:
        """Return a file opened for random reading."""
        filesystem, path = self.opened()
        return cast(BinaryIO, filesystem.open_input_file(f"{path}/{name}"))

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically, with the folders above it; of several processes that write it, the last counts."""
        with self.create(name) as sink:
            sink.stream.write(data)
            sink.commit()

    def settle(self, name: str, data: bytes) -> None:
        """Write a file that several processes may write at once; one that has these bytes is left alone.

        On S3 by conditional requests (`stores.settle_object`), elsewhere by `write`.
        """
        if self.uri.startswith(S3):
            settle_object(self.uri, name, data)
        elif not (self.exists(name) and self.read(name) == data):
            self.write(name, data)

    def add(self, name: str, data: bytes) -> bool:
        """Write a file where there is none; return False where there is one. Of several processes one writes it.

        On a store without conditional requests (other than S3 and file systems) two that write at once may both do so.
        """
        if self.uri.startswith(S3):
            return write_object(self.uri, name, data, tag=None) is not None
        with self.create(name) as sink:
            sink.stream.write(data)
            if sink.renamed is None:
                if is_new := not self.exists(name):
                    sink.commit()
                return is_new
            sink.stream.flush()
            os.fsync(sink.stream.fileno())
            try:
                os.link(*sink.renamed)
            except FileExistsError:
                return False
            return True

    def create(self, name: str) -> Sink:
        """Return a new file to write piece by piece; it appears, whole, when it is committed."""
        filesystem, path = self.opened()
        if not isinstance(filesystem, pafs.LocalFileSystem):
            upload = (
                partial(upload_object, self.uri, name)
                if self._has_client
                else partial(_copy_to, filesystem, f"{path}/{name}")
            )
            return Sink(cast(BinaryIO, _Spooled(_WRITTEN_AT_ONCE)), upload=upload)
        target = Path(path, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        return Sink(_Buffered(io.FileIO(temporary, "xb"), _WRITTEN_AT_ONCE), (temporary, target))

    def link(self, name: str, source: Folder) -> None:
        """Have a file of another folder of the same lake, too, which nobody changes: one file under two names.

        On an object store, and where a file system cannot do so, it is a copy.
        """
        filesystem, path = self.opened()
        there, here = f"{source.opened()[1]}/{name}", f"{path}/{name}"
        if isinstance(filesystem, pafs.LocalFileSystem):
            Path(here).parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):
                return os.link(there, here)
        filesystem.copy_file(there, here)

    def exists(self, name: str = "") -> bool:
        """Return whether a file or a folder is there; without a name, this folder itself."""
        filesystem, path = self.opened()
        return bool(filesystem.get_file_info(f"{path}/{name}".rstrip("/")).type != pafs.FileType.NotFound)

    def is_folder(self) -> bool:
        """Return whether a folder is there; on an object store, whether anything is below its address."""
        filesystem, path = self.opened()
        return bool(filesystem.get_file_info(path).type == pafs.FileType.Directory)

    def names(self) -> list[str]:
        """Return the names directly inside, sorted; an absent folder has none."""
        return sorted(info.base_name for info in self._list())

    def files(self) -> Iterator[str]:
        """Return the path of every file below this folder, relative to it, in sorted order."""
        return iter(self.infos())

    def infos(self) -> dict[str, pafs.FileInfo]:
        """Return what is known of every file below this folder, by its path relative to it, in sorted order."""
        _, path = self.opened()
        files = [info for info in self._list(recursive=True) if info.type == pafs.FileType.File]
        by_path = {info.path.removeprefix(path).lstrip("/"): info for info in files}
        return dict(sorted(by_path.items()))

    def stamp(self, name: str) -> tuple[int, int]:
        """Return the size of a file and when it was written (ns); of a file that is not there, zeros."""
        filesystem, path = self.opened()
        info = filesystem.get_file_info(f"{path}/{name}")
        return info.size or 0, info.mtime_ns or 0

    def move(self, name: str, target: Folder) -> None:
        """Put a file into another folder of the same store, under the same name, in place of one that is there."""
        filesystem, path = self.opened()
        if target.local is not None:
            Path(target.local, name).parent.mkdir(parents=True, exist_ok=True)
        filesystem.move(f"{path}/{name}", f"{target.opened()[1]}/{name}")

    def delete(self, name: str) -> None:
        """Delete a file; an absent one is no error."""
        if self.uri.startswith(S3):
            return delete_object(self.uri, name)
        filesystem, path = self.opened()
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(f"{path}/{name}")

    def remove(self) -> None:
        """Remove the folder with everything in it; an absent one is no error."""
        filesystem, path = self.opened()
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(path)

    def _list(self, *, recursive: bool = False) -> list[pafs.FileInfo]:
        filesystem, path = self.opened()
        selector = pafs.FileSelector(path, allow_not_found=True, recursive=recursive)
        return cast(list[pafs.FileInfo], filesystem.get_file_info(selector))

    @property
    def _has_client(self) -> bool:
        """Return whether it is on S3, and this machine has boto3: Beam's and Ray's workers may have pyarrow alone."""
        return self.uri.startswith(S3) and has_client()

    def opened(self) -> tuple[pafs.FileSystem, str]:
        """Return its file system, and its path there."""
        if "://" in self.uri or self.uri.startswith("file:"):
            return open_store(self.uri)
        return pafs.LocalFileSystem(), os.path.abspath(self.uri)  # noqa: PTH100 - a tenth of pathlib's time, at every step


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
    """On a file system, under a temporary name, which it has no more once it is committed."""

    def __del__(self) -> None:
        super().__del__()
        with contextlib.suppress(OSError):
            Path(self.raw.name).unlink(missing_ok=True)  # type: ignore[attr-defined]  # a FileIO


class _Spooled(_Uncommitted, SpooledTemporaryFile[bytes]):
    """For an object store."""


def _copy_to(filesystem: pafs.FileSystem, path: str, stream: BinaryIO) -> None:
    with filesystem.open_output_stream(path, compression=None) as target:
        shutil.copyfileobj(stream, target, _WRITTEN_AT_ONCE)


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
        """Return where the list is of what a build of a data set read and rejected (`schemas.ledger`)."""
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
