"""Weight files a user names: where each lies, what its SHA-256 is, and its local copy.

A weight is `NAME=URI[#sha256=HEX]`; a URI is a path, `file://`, or `http(s)://`. Only what configuration names is ever
fetched, only when an extractor first needs it, and only from an address whose SHA-256 is stated: the file is fetched
once into the cache, under its digest. What is inside a file is for the extractor that asked for it.
"""

from __future__ import annotations

import os
import re
import tempfile
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import requests

from schemas.configs import require
from schemas.errors import BuildError, ConfigError, IntegrityError, NotFoundError
from schemas.versions import digest_stream

_FIELD = "features.weights"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TIMEOUT_S = 60  # to connect, and for each wait for bytes
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A file of weights: its name in the configuration, its address, and its SHA-256 (hex) or ""."""

    name: str
    uri: str
    sha256: str = ""

    def __post_init__(self) -> None:
        require(bool(self.name), field=_FIELD, value=f"{self.name}={self.uri}", rule="NAME=URI needs a name")
        require(bool(self.uri), field=_FIELD, value=f"{self.name}={self.uri}", rule="NAME=URI needs an address")
        is_digest = not self.sha256 or _SHA256.fullmatch(self.sha256) is not None
        require(
            is_digest, field=_FIELD, value=f"{self.name}={self.uri}", rule="sha256 must be 64 lower-case hex digits"
        )
        must_check = not self.is_remote or bool(self.sha256)
        require(must_check, field=_FIELD, value=f"{self.name}={self.uri}", rule="http(s) needs #sha256=HEX")

    @property
    def is_remote(self) -> bool:
        return self.uri.startswith(("http://", "https://"))

    def path(self, cache: Path | None = None) -> Path:
        """Return the local file, fetched into `cache` (see `weight_cache`) where its address is remote.

        Raises:
            NotFoundError: there is no such file.
            BuildError: the address does not answer with the file.
            IntegrityError: the file's SHA-256 is not the stated one.
        """
        if self.is_remote:
            return _fetched(self, weight_cache() if cache is None else cache)
        path = _local(self.uri)
        if not path.is_file():
            raise NotFoundError(f"{_FIELD}: {self.name}: there is no file {path}")
        if self.sha256:
            _check(self, digest_of(path))
        return path


def parse_weights(assignments: Iterable[str]) -> dict[str, WeightFile]:
    """Return the weight files of `NAME=URI[#sha256=HEX]` by name.

    Raises:
        ConfigError: an entry of another form, or a name given twice.
    """
    weights: dict[str, WeightFile] = {}
    for assignment in assignments:
        name, separator, address = assignment.partition("=")
        uri, _, digest = address.partition("#sha256=")
        require(bool(separator), field=_FIELD, value=assignment, rule="expected NAME=URI[#sha256=HEX]")
        require(name.strip() not in weights, field=_FIELD, value=assignment, rule="a name may be given once")
        weights[name.strip()] = WeightFile(name.strip(), uri.strip(), digest.strip())
    return weights


def weight_of(name: str, weights: Mapping[str, WeightFile], *, what: str) -> WeightFile:
    """Return the weight file of this name.

    Raises:
        ConfigError: it is not given; the message says which setting to give.
    """
    if name not in weights:
        raise ConfigError(f"{_FIELD} has no {name!r}: give --set {_FIELD}={name}=FILE, {what}")
    return weights[name]


def weight_cache() -> Path:
    """Return the folder of fetched weights: `$MULTILINK_CACHE`, else ~/.cache/multilink, and in it `weights`."""
    root = os.environ.get("MULTILINK_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "multilink") / "weights"


def digest_of(path: Path) -> str:
    """Return the SHA-256 (hex) of a file."""
    with path.open("rb") as stream:
        return digest_stream(stream)


def _local(uri: str) -> Path:
    if uri.startswith("file:"):
        return Path(urllib.parse.unquote(urllib.parse.urlsplit(uri).path))
    return Path(uri).expanduser()


def _fetched(weight: WeightFile, cache: Path) -> Path:
    """Return the copy in the cache, which is named by its digest, so that its presence says it is the right one."""
    path = cache / weight.sha256 / (Path(urllib.parse.urlsplit(weight.uri).path).name or "weights")
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as stream:
        part = Path(stream.name)
    try:
        _download(weight, part)
        _check(weight, digest_of(part))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _download(weight: WeightFile, path: Path) -> None:
    try:
        with requests.get(weight.uri, stream=True, timeout=_TIMEOUT_S) as answer, path.open("wb") as stream:
            answer.raise_for_status()
            for chunk in answer.iter_content(_CHUNK_BYTES):
                stream.write(chunk)
    except requests.RequestException as error:
        raise BuildError(f"{_FIELD}: {weight.name}: {weight.uri} could not be fetched: {error}") from error


def _check(weight: WeightFile, found: str) -> None:
    if found != weight.sha256:
        raise IntegrityError(f"{_FIELD}: {weight.name}: expected SHA-256 {weight.sha256}, {weight.uri} has {found}")
