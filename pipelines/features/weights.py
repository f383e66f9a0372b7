"""Weight files a user names: the address of each, its SHA-256, and its local copy.

A weight is `NAME=URI[#sha256=HEX]`; a URI is a path, `file://`, `http(s)://`, or one of an object store. Only what
configuration names is ever fetched, only when an extractor first needs it, and only from an address whose SHA-256 is
stated. What a host has goes through the client of every source. It is kept in a cache outside the lake. A file is
hashed whenever it is opened, wherever it is.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from filelock import FileLock

from pipelines.settings import HttpConfig
from pipelines.web.client import process_client
from pipelines.web.downloads import capture_file
from pipelines.web.requests import FetchFailed
from schemas.configs import require
from schemas.lake import Folder, folder_of
from schemas.messages import BuildError, ConfigError, IntegrityError, NotFoundError
from schemas.versions import digest_stream, digest_within, fingerprint

_FIELD = "features.weights"
_HTTP = ("http://", "https://")
_CONVERT = "pipelines.features.convert."
_DIGITS = 16
_SHA256 = re.compile(r"[0-9a-f]{64}")


class LocalFile(NamedTuple):
    """A file on this machine, and its SHA-256 (hex)."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A file of weights: its name in the configuration, its address, its SHA-256 (hex) or "", and how it is fetched."""

    name: str
    uri: str
    sha256: str = ""
    http: HttpConfig = field(default_factory=HttpConfig)

    def __str__(self) -> str:
        return f"{self.name}={self.uri}" + f"#sha256={self.sha256}" * bool(self.sha256)

    @property
    def is_graph(self) -> bool:
        """Return whether it is a network in ONNX, by its name."""
        return self.uri.partition("?")[0].endswith(".onnx")

    @property
    def digest(self) -> str:
        """Return the stated SHA-256 (hex), else the file's."""
        return self.sha256 or self.local().sha256

    def local(self) -> LocalFile:
        """Return the local file, fetched into the cache (see `machine_cache`) where its address is remote.

        Raises:
            NotFoundError: there is no such file.
            BuildError: the address does not answer with the file.
            IntegrityError: the file's SHA-256 is not the stated one; a fetched file is deleted then.
        """
        is_uri, is_remote = self.uri.startswith("file:"), _is_remote(self.uri)
        named = Path(unquote(urlsplit(self.uri).path)) if is_uri else Path(self.uri).expanduser()
        path = self._fetched() if is_remote else named
        if not path.is_file():
            raise NotFoundError(f"{_FIELD}: {self.name}: there is no file {path}")
        found = digest_of(path)
        if self.sha256 in ("", found):
            return LocalFile(path, found)
        if is_remote:
            path.unlink()
        raise IntegrityError(f"{_FIELD}: {self.name}: expected SHA-256 {self.sha256}, {path} of {self.uri} has {found}")

    def _fetched(self) -> Path:
        cache, name = machine_cache("weights"), PurePosixPath(urlsplit(self.uri).path).name or "weights"
        path = Path(cache.uri, self.sha256, name)
        if not path.is_file():
            try:
                self._fetch(cache, path)
            except (FetchFailed, OSError) as error:
                raise BuildError(f"{_FIELD}: {self.name}: {self.uri} could not be fetched: {error}") from error
        return path

    def _fetch(self, cache: Folder, path: Path) -> None:
        if not self.uri.startswith(_HTTP):
            folder, name = folder_of(self.uri)
            return Folder(str(path.parent)).write(path.name, folder.read(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        capture_file(process_client(self.http, cache), self.uri).path.replace(path)


def parse_weights(assignments: Iterable[str], http: HttpConfig | None = None) -> dict[str, WeightFile]:
    """Return the weight files of `NAME=URI[#sha256=HEX]` by name.

    Raises:
        ConfigError: an entry of another form, or a name given twice.
    """
    weights: dict[str, WeightFile] = {}
    for assignment in assignments:
        name, separator, address = assignment.partition("=")
        uri, _, digest = address.partition("#sha256=")
        name, uri, digest = name.strip(), uri.strip(), digest.strip()
        for holds, rule in (
            (separator, "expected NAME=URI[#sha256=HEX]"),
            (name, "NAME=URI needs a name"),
            (uri, "NAME=URI needs an address"),
            (name not in weights, "a name may be given once"),
            (digest == "" or _SHA256.fullmatch(digest), "sha256 must be 64 lower-case hex digits"),
            (digest or not _is_remote(uri), f"{uri.partition('://')[0]} needs #sha256=HEX"),
        ):
            require(bool(holds), field=_FIELD, value=assignment, rule=rule)
        weights[name] = WeightFile(name, uri, digest, http or HttpConfig())
    return weights


def weight_of(name: str, weights: Mapping[str, WeightFile], *, what: str) -> WeightFile:
    """Return the weight file of this name.

    Raises:
        ConfigError: it is not given; the message says which setting to give.
    """
    if name not in weights:
        raise ConfigError(f"{_FIELD} has no {name!r}: give --set {_FIELD}={name}=FILE, {what}")
    return weights[name]


def machine_cache(kind: str) -> Folder:
    """Return a folder of this machine, below `$MULTILINK_CACHE`, else ~/.cache/multilink.

    Args:
        kind: `weights`, which were fetched, or `networks`, the graphs that were made of checkpoints.
    """
    root = os.environ.get("MULTILINK_CACHE")
    return Folder(str((Path(root) if root else Path.home() / ".cache" / "multilink") / kind))


def graph_stem(name: str, module: str, checkpoint: str) -> str:
    """Return the name of the graph that is made of a checkpoint: one by one checkpoint and one code.

    Args:
        module: builds the network. What it uses of `networks`, and what converts, is the code.
        checkpoint: SHA-256 (hex) of its file.
    """
    code = digest_within(module, f"{module}.", "networks.", _CONVERT)
    return f"{name}-{fingerprint({'checkpoint': checkpoint, 'code': code})[:_DIGITS]}"


def make_once(name: str, make: Callable[[], bytes]) -> Folder:
    """Return the folder of networks of this machine once it has a file; of processes that want it, one makes it."""
    cache = machine_cache("networks")
    if not cache.exists(name):
        Path(cache.uri).mkdir(parents=True, exist_ok=True)
        with FileLock(Path(cache.uri, f".{name}.lock")):
            if not cache.exists(name):
                cache.write(name, make())
    return cache


def kept_in(folder: Folder, name: str, file: str, read: Callable[[], bytes]) -> WeightFile:
    """Return a file of weights of some name, kept in a folder; what the folder has is not read again."""
    if not folder.exists(file):
        folder.settle(file, read())
    return WeightFile(name, folder.child(file).uri, hashlib.sha256(folder.read(file)).hexdigest())


def _is_remote(uri: str) -> bool:
    return "://" in uri and not uri.startswith("file:")


def digest_of(path: Path) -> str:
    """Return the SHA-256 (hex) of a file."""
    with path.open("rb") as stream:
        return digest_stream(stream)
