"""Object stores: S3, Google Cloud Storage and Azure, by obstore, each opened once a process.

A store that is away for a minute is waited for: a request is made again, with growing pauses. What a request needs
beside its bucket comes from the environment, as for every program of that cloud (AWS_ACCESS_KEY_ID, AWS_PROFILE,
AWS_REGION, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME ...); where an S3 server is may
stand in the URI (`s3://bucket/lake?region=...&endpoint=http://...`). A URI is written into logs, pages and tags, so a
key in it is refused. What a store refuses is an `OSError` of one line.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import parse_qsl

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

from schemas.messages import UsageError

if TYPE_CHECKING:
    from obstore import ObjectMeta, UpdateVersion
    from obstore.store import ObjectStore

ATTEMPTS = 12  # pauses grow to 15 s: together more than a minute
_IN_PIECES = 64 << 20  # bytes: of a longer object, each
_SCHEMES = ("s3", "gs", "az", "abfs", "abfss")
_S3_OPTIONS = {"endpoint", "region"}
_ANSWER = re.compile(r"<Code>(\w+)</Code>\s*<Message>([^<]*)")  # of all three clouds
_OF_OBJECTS = ("NoSuchKey", "BlobNotFound")  # codes of answers that say that an object is not there


@dataclass(frozen=True, slots=True)
class FileInfo:
    """The size of a file, in bytes, and when it was written, in nanoseconds since 1970."""

    size: int
    mtime_ns: int


class ObjectFile(io.RawIOBase):
    """An object, opened for random reading: `read_range` gives the bytes from one on, so many."""

    def __init__(self, size: int, read_range: Callable[[int, int], bytes]) -> None:
        self._size, self._read_range, self._position = size, read_range, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        count = max(0, min(len(buffer), self._size - self._position))
        if count:
            buffer[:count] = self._read_range(self._position, count)
        self._position += count
        return count

    def readall(self) -> bytes:
        return self.read(max(0, self._size - self._position)) or b""


def read_object(uri: str, name: str) -> tuple[bytes | None, UpdateVersion | None]:
    """Return the content of an object below a URI, and what tells that content from others; None: there is none."""
    with contextlib.suppress(FileNotFoundError), _opened(uri, name) as (store, key):
        found = obstore.get(store, key)
        version = {name: value for name in ("e_tag", "version") if (value := found.meta[name]) is not None}
        return bytes(found.bytes()), cast("UpdateVersion", version)
    return None, None


def read_end(uri: str, name: str, count: int) -> tuple[bytes, int]:
    """Return at most so many bytes of the end of an object that is not empty, and how many it has; one request."""
    with _opened(uri, name) as (store, key):
        found = obstore.get(store, key, options={"range": {"suffix": count}})
        return bytes(found.bytes()), found.meta["size"]


def read_range(uri: str, name: str, start: int, count: int) -> bytes:
    """Return at most so many bytes of an object, from one on that it has; one request."""
    with _opened(uri, name) as (store, key):
        return bytes(obstore.get_range(store, key, start=start, length=count))


def write_object(uri: str, name: str, data: bytes, *, version: UpdateVersion | None) -> bool:
    """Write an object whose content is still that version, None where it must not be there; return whether it is."""
    with contextlib.suppress(FileExistsError), _opened(uri, name) as (store, key):
        obstore.put(store, key, data, mode=version or "create")
        return True
    return False


def settle_object(uri: str, name: str, data: bytes) -> None:
    """Give an object its content, by requests that hold only for what was read before.

    So a request that arrives late undoes nothing, and of equal contents one is written.
    """
    is_settled = False
    while not is_settled:
        found, version = read_object(uri, name)
        is_settled = found == data or write_object(uri, name, data, version=version)


def upload_object(uri: str, name: str, stream: BinaryIO) -> None:
    """Write an object from a stream: in one request, a large one in pieces that are then made one."""
    with _opened(uri, name) as (store, key):
        obstore.put(store, key, stream, chunk_size=_IN_PIECES, max_concurrency=1)


def object_info(uri: str, name: str) -> FileInfo:
    """Return what is known of an object.

    Raises:
        FileNotFoundError: there is no such object.
    """
    with _opened(uri, name) as (store, key):
        return _info(obstore.head(store, key))


def list_objects(uri: str) -> dict[str, FileInfo]:
    """Return what is known of all objects below a URI, by their paths relative to it, in sorted order.

    An empty object that others are below is what some programs leave for a folder, and no file.
    """
    with _opened(uri) as (store, key):
        metas = [meta for batch in obstore.list(store, key, chunk_size=1000) for meta in batch]
    found = {meta["path"].removeprefix(key).lstrip("/"): _info(meta) for meta in metas}
    folders = {path[: at.start()] for path in found for at in re.finditer("/", path)}
    return {path: found[path] for path in sorted(found) if found[path].size or path not in folders}


def list_names(uri: str) -> list[str]:
    """Return the names directly below a URI, sorted."""
    with _opened(uri) as (store, key):
        found = obstore.list_with_delimiter(store, key)
    paths = {*found["common_prefixes"], *(meta["path"] for meta in found["objects"])} - {key}
    return sorted(path.rpartition("/")[2] for path in paths)


def has_objects(uri: str) -> bool:
    """Return whether any object is below a URI; one request."""
    with _opened(uri) as (store, key):
        return any(len(batch) for batch in obstore.list(store, key, chunk_size=1))


def delete_objects(uri: str, *names: str) -> None:
    """Delete objects below a URI; an absent one is no error."""
    with contextlib.suppress(FileNotFoundError), _opened(uri) as (store, prefix):
        obstore.delete(store, [_key(prefix, name) for name in names])


def copy_object(source: str, target: str, name: str, *, moves: bool = False) -> None:
    """Copy an object of one URI to another of the same store, or move it, over one that is there."""
    with _opened(source, name) as (store, key):
        (obstore.rename if moves else obstore.copy)(store, key, _key(split_uri(target)[2], name))


@contextlib.contextmanager
def _opened(uri: str, name: str = "") -> Iterator[tuple[ObjectStore, str]]:
    """Give the store of a URI and the key of an object below it; what the store refuses is an `OSError`."""
    scheme, bucket, prefix, options = split_uri(uri)
    if _first_process() != os.getpid():
        raise OSError(f"{uri}: this process was forked from one that uses the store; start processes by `spawn`")
    try:
        yield _store(scheme, bucket, options), _key(prefix, name)
    except (AlreadyExistsError, PreconditionError) as refusal:
        raise FileExistsError(errno.EEXIST, "there is another object", _key(uri, name)) from refusal
    except (BaseError, FileNotFoundError, ValueError) as refusal:
        raise _error(refusal, _key(uri, name)) from refusal


def _error(refusal: Exception, uri: str) -> OSError:
    """Return what a store refused in one line: its own words, or what came instead of an answer."""
    answer = _ANSWER.search(str(refusal))
    if isinstance(refusal, FileNotFoundError) and (answer is None or answer[1] in _OF_OBJECTS):
        return FileNotFoundError(errno.ENOENT, "there is no such object", uri)
    words = f"{answer[1]}: {answer[2]}" if answer else " ".join(str(refusal).partition("Debug source")[0].split())
    is_forbidden = type(refusal).__name__ in ("PermissionDeniedError", "UnauthenticatedError")
    return PermissionError(errno.EACCES, words, uri) if is_forbidden else OSError(errno.EIO, words, uri)


@cache
def _first_process() -> int:
    """Return the process that used a store first: the threads of obstore are not there in one forked from it."""
    return os.getpid()


@cache
def _store(scheme: str, bucket: str, options: str) -> ObjectStore:
    if scheme not in _SCHEMES:
        raise UsageError(f"{scheme}://{bucket}: expected a path, or an address that begins with file:, s3:, gs: or az:")
    given, known = dict(parse_qsl(options)), _S3_OPTIONS if scheme == "s3" else set[str]()
    if unknown := sorted(given.keys() - known):
        raise UsageError(
            f"{scheme}: unknown option {unknown[0]!r}; expected one of {', '.join(sorted(known)) or 'none'}"
        )
    settings: dict[str, Any] = {
        "config": given,
        "client_options": {"timeout": timedelta(minutes=30), "read_timeout": timedelta(minutes=1), "allow_http": True},
        "retry_config": {"max_retries": ATTEMPTS - 1},
        "credential_provider": _credentials() if scheme == "s3" else None,
    }
    store: ObjectStore = from_url(f"{scheme}://{bucket}", **settings)
    return store


def _credentials() -> Any:
    """Return what gives the keys of a profile or a role; None: obstore takes them from the environment."""
    if os.environ.get("AWS_ACCESS_KEY_ID") or find_spec("boto3") is None:
        return None
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider()
    except ValueError:  # boto3 knows none
        return None


def split_uri(uri: str) -> tuple[str, str, str, str]:
    """Return the scheme, bucket, key and options of a URI."""
    scheme, _, rest = uri.partition("://")
    path, _, options = rest.partition("?")
    bucket, _, key = path.partition("/")
    if scheme == "s3" and "@" in bucket:
        where = f"s3://...@{bucket.rpartition('@')[2]}/{key}"
        raise UsageError(f"{where}: expected a URI without a key; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    return scheme, bucket, key.strip("/"), options


def _key(prefix: str, name: str) -> str:
    return f"{prefix}/{name}".strip("/")


def _info(meta: ObjectMeta) -> FileInfo:
    return FileInfo(meta["size"], int(meta["last_modified"].timestamp() * 1e9))
