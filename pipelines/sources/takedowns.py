"""A takedown list: what must not be in any new version of a data set, one entry a line.

    id:3x9k2f                                 a document's id, or the record's id at its source
    url:https://imgur.com/a/AbCdE             a page, or an image
    sha256:9f86d081884c7d65...                an image, by the SHA-256 of its original bytes
    phash:c3d4e5f60718293a/3                  an image, by its fingerprint, within so many bits (3 unless said)
    # a comment, also behind an entry after a space

A page or an id takes the document out; an image's address, hash or fingerprint takes the image out. The list's
fingerprint is part of a version's name: another list, another version. Versions that exist, and what was captured in
`raw/`, are not touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from pipelines.sources.candidate import CandidateDocument
from schemas.errors import NotFoundError, UsageError
from schemas.images import Image
from schemas.versions import fingerprint

DEFAULT_RADIUS = 3  # SPEC 3: two images that differ in at most 3 bits are duplicates
MAX_RADIUS = 12
_HASH = re.compile(r"[0-9a-f]{64}")
_CODE = re.compile(r"((?:[0-9a-f]{16})+)(?:/(\d{1,4}))?")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class TakedownKind(StrEnum):
    ID = "id"
    URL = "url"
    SHA256 = "sha256"
    PHASH = "phash"


@dataclass(frozen=True, slots=True)
class _Look:
    """A fingerprint and how far others may be from it, in bits."""

    code: int
    digits: int
    radius: int

    def is_near(self, other: str) -> bool:
        return len(other) == self.digits and (int(other, 16) ^ self.code).bit_count() <= self.radius


@dataclass(frozen=True, slots=True)
class Takedowns:
    """A takedown list; `matches_...` return the entry that matches, written `kind:value`, or None.

    Attributes:
        entries: in canonical form (`kind:value`), sorted, each once.
    """

    entries: tuple[str, ...] = ()
    _exact: frozenset[str] = field(init=False, repr=False, compare=False)
    _looks: tuple[tuple[str, _Look], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_exact", frozenset(self.entries))
        looks = tuple((entry, _look_of(entry)) for entry in self.entries if entry.startswith(TakedownKind.PHASH))
        object.__setattr__(self, "_looks", looks)

    @property
    def fingerprint(self) -> str:
        """Return what goes into a version's name; an empty list is like none: empty."""
        return fingerprint(list(self.entries)) if self.entries else ""

    def check_fingerprint(self, name: str) -> None:
        """Raise a `UsageError` where images are listed by a look that a build with that fingerprint cannot compare.

        Args:
            name: of the build's perceptual hash: `phash`, `phash-256` or one that is no pHash.
        """
        digits = {"phash": 16, "phash-256": 64}.get(name)
        for entry, look in self._looks:
            if look.digits != digits:
                raise UsageError(
                    f"takedown list: {entry} cannot be compared with dedupe.fingerprint = {name}: expected "
                    f"{'no phash entry' if digits is None else f'{digits} hexadecimal digits'}; list its sha256 instead"
                )

    def matches_candidate(self, draft: CandidateDocument) -> str | None:
        """Return the entry that takes out a whole document: its id, its record's id, or its page's URL."""
        urls = [] if draft.provenance.url is None else [draft.provenance.url]
        return self.matches_record([draft.id, draft.provenance.record_id], urls)

    def matches_record(self, ids: Iterable[str], urls: Iterable[str]) -> str | None:
        """Return the entry that takes out what has these ids and pages: for a look before anything is fetched."""
        keys = [*(f"{TakedownKind.ID}:{value}" for value in ids), *map(_url_key, urls)]
        return next((key for key in keys if key in self._exact), None)

    def matches_address(self, uri: str) -> str | None:
        """Return the entry that takes out the image at an address: nothing need be fetched to know."""
        if not self.entries:
            return None
        key = _url_key(uri)
        return key if key in self._exact else None

    def matches_image(self, image: Image) -> str | None:
        """Return the entry that takes out an image: its address, its hash, or its fingerprint.

        A flat image (one colour) is never matched by its fingerprint, which all flat images share.
        """
        if not self.entries:
            return None
        keys = [f"{TakedownKind.SHA256}:{image.hash}"]
        if image.source is not None:
            keys.append(_url_key(image.source))
        exact = next((key for key in keys if key in self._exact), None)
        if exact is not None or image.fingerprint is None or image.is_flat:
            return exact
        return next((entry for entry, look in self._looks if look.is_near(image.fingerprint)), None)


NO_TAKEDOWNS = Takedowns()


def read_takedowns(path: Path) -> Takedowns:
    """Return the list in a UTF-8 file.

    Raises:
        NotFoundError: there is no such file.
        UsageError: a line cannot be read; the message names it.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as problem:
        raise NotFoundError(f"takedown list {path}: no such file") from problem
    except OSError as problem:
        raise UsageError(f"takedown list {path}: cannot be read ({problem.strerror})") from problem
    return parse_takedowns(data.removeprefix(b"\xef\xbb\xbf").splitlines(), name=path.name)


def parse_takedowns(lines: Iterable[bytes], *, name: str) -> Takedowns:
    """Return the list of some lines.

    Args:
        lines: UTF-8, without line ends that matter.
        name: of the list, for messages.

    Raises:
        UsageError: a line cannot be read; the message names it.
    """
    entries: set[str] = set()
    for number, line in enumerate(lines, start=1):
        try:
            text = _COMMENT.sub("", line.decode()).strip()
            if text:
                entries.add(_entry(text))
        except UnicodeDecodeError as problem:
            raise UsageError(f"{name}:{number}: expected UTF-8, found byte {line[problem.start]:#04x}") from problem
        except ValueError as problem:
            raise UsageError(f"{name}:{number}: {problem}") from problem
    return Takedowns(tuple(sorted(entries)))


def _entry(text: str) -> str:
    """Return an entry in its canonical form; a `ValueError` says what is wrong with it."""
    name, colon, value = text.partition(":")
    name, value = name.strip().lower(), value.strip()
    if not colon or name not in list(TakedownKind):
        raise ValueError(f"expected {', '.join(f'{kind}:' for kind in TakedownKind)} and a value, found {text!r}")
    if not value:
        raise ValueError(f"expected a value after '{name}:', found nothing")
    if name == TakedownKind.ID:
        return f"{name}:{value}"
    if name == TakedownKind.URL:
        return _checked_url(value)
    return _checked_hash(value.lower()) if name == TakedownKind.SHA256 else _checked_code(value.lower())


def _checked_url(value: str) -> str:
    key = _url_key(value)
    if not key or not urlsplit(value).hostname:
        raise ValueError(f"url: expected an http or https URL, found {value!r}")
    return key


def _checked_hash(value: str) -> str:
    if not _HASH.fullmatch(value):
        raise ValueError(f"sha256: expected 64 hexadecimal digits, found {value!r}")
    return f"{TakedownKind.SHA256}:{value}"


def _checked_code(value: str) -> str:
    match = _CODE.fullmatch(value)
    if match is None:
        rule = "16 hexadecimal digits for each 64 bits, then perhaps /RADIUS"
        raise ValueError(f"phash: expected {rule}, found {value!r}")
    radius = DEFAULT_RADIUS if match[2] is None else int(match[2])
    if radius > MAX_RADIUS:
        raise ValueError(f"phash: expected a radius in 0..{MAX_RADIUS} bits, found {radius}")
    return f"{TakedownKind.PHASH}:{match[1]}/{radius}"


def _look_of(entry: str) -> _Look:
    digits, _, radius = entry.removeprefix(f"{TakedownKind.PHASH}:").partition("/")
    return _Look(int(digits, 16), len(digits), int(radius))


def _url_key(url: str) -> str:
    """Return a URL's entry: http and https are one, as are the host's capitals, a default port, a closing slash.

    The fragment goes; the query stays. What is no URL (a path) gives a key that no entry has.
    """
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return ""
    if parts.scheme not in _DEFAULT_PORTS:
        return ""
    host = parts.netloc.lower().removesuffix(_DEFAULT_PORTS[parts.scheme])
    query = f"?{parts.query}" if parts.query else ""
    return f"{TakedownKind.URL}:https://{host}{parts.path.rstrip('/')}{query}"
