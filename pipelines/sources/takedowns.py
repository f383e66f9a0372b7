"""A takedown list: what must not be in any new version of a data set, one entry a line.

    id:3x9k2f                                 a document's id, or the record's id at its source
    url:https://imgur.com/a/AbCdE             a page, or an image; `url:` may be left out
    domain:example.org                        every page and image of a host and of those below it; bücher.example, too
    sha256:9f86d081884c7d65...                an image, by the SHA-256 of its original bytes; `sha256:` may be left out;
                                              a copy of it that this project exported and reads again goes, too
    # a comment, also behind an entry after a space

An id is matched as a whole, `#` in it included: behind an id a comment begins with ` # `.
A page, its domain or an id takes the document out; an image's address, domain or hash takes the image out. The list's
fingerprint is part of a version's name: another list, another version. A version says how many documents the list took
out, and not which. Versions that exist, and what was captured in `raw/`, are touched by `multilink lake forget` alone,
which takes the same entries.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

from pipelines.embedded import Unusable, on_web
from pipelines.files import open_uri
from pipelines.sources.records import CandidateDocument, CandidateImage
from pipelines.web.requests import FetchFailed, host_of, normalise
from schemas.failures import Failure, Reason, Stage
from schemas.lake import Folder
from schemas.messages import NotFoundError, UsageError
from schemas.versions import fingerprint

_KINDS = ("id", "url", "domain", "sha256")
_HOST = re.compile(r"\[[^]]*\]|[^/?:]*")
_FORMS = {
    "domain": (re.compile(r"(?:\*?\.)?([^\s/:@*]*[^\s/:@*.])\.?(?::(?:80|443))?"), "a host name"),
    "sha256": (re.compile(r"[0-9a-f]{64}"), "64 hexadecimal digits"),
}
_COMMENT = re.compile(r"(?:^|\s)#.*")
_COMMENT_OF_ID = re.compile(r"^\s*#.*|\s#(?:\s.*)?$")


@dataclass(frozen=True)
class Takedowns:
    """A takedown list; `matches_...` return the entry that matches, written `kind:value`, or None.

    Attributes:
        entries: in canonical form (`kind:value`), sorted, each once.
        file: folder and name of a file that they are kept in: the list travels to workers as these, and each process
            reads it once. None: it travels as a whole.
    """

    entries: tuple[str, ...] = ()
    file: tuple[Folder, str] | None = field(default=None, compare=False)

    def kept_in(self, folder: Folder, name: str) -> "Takedowns":
        """Return the list as one that is kept in a file, which is written; an empty list needs none."""
        if not self.entries:
            return self
        folder.write(name, json.dumps(self.entries).encode())
        return replace(self, file=(folder, name))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_kept, self.file) if self.file else (Takedowns, (self.entries,))

    @cached_property
    def _exact(self) -> frozenset[str]:
        return frozenset(self.entries)

    @property
    def fingerprint(self) -> str:
        """Return what goes into a version's name; an empty list is like none: empty."""
        return fingerprint(list(self.entries)) if self.entries else ""

    def matches_candidate(self, candidate: CandidateDocument) -> str | None:
        """Return the entry that takes out a whole document: its id, its record's id, or its page's URL."""
        return self.matches_record((candidate.id, candidate.provenance.record_id), (candidate.provenance.url or "",))

    def matches_record(self, ids: Iterable[str], urls: Iterable[str]) -> str | None:
        """Return the entry that takes out what has these ids and pages."""
        return self._listed(f"id:{value}" for value in ids) or self.matches_address(*urls)

    def matches_address(self, *uris: str) -> str | None:
        """Return the entry that takes out what is at any of these addresses, such as one and where it redirects to."""
        if not self.entries:
            return None
        keys = [key for uri in uris if (key := url_key(uri))]
        return self._listed(keys) or self._listed(each for key in keys for each in _domains_of(key))

    def _listed(self, keys: Iterable[str]) -> str | None:
        return next((key for key in keys if key in self._exact), None)

    def matches_image(self, digest: str, *uris: str) -> str | None:
        """Return the entry that takes out an image: its SHA-256, or an address that it is at."""
        return self._listed([f"sha256:{digest}"]) or self.matches_address(*uris)


@lru_cache(2)
def _kept(folder: Folder, name: str) -> Takedowns:
    return Takedowns(tuple(json.loads(folder.read(name))), (folder, name))


NO_TAKEDOWNS = Takedowns()
NAMELESS = "taken-down"  # in place of what a failure row of a document on the list would name


def taken_down(stage: Stage, entry: str, record_id: str = NAMELESS) -> Failure:
    """Return the failure row of what the list names: a version is published, and must not name a document of the list.

    Args:
        stage: that left it out.
        entry: of the list.
        record_id: of an image whose document stays.
    """
    return Failure(stage, record_id, Reason.TAKEN_DOWN, said(entry))


def said(entry: str) -> str:
    """Return what a failure row says of an entry: its kind."""
    return f"on the takedown list by its {entry.partition(':')[0]}"


def without_listed(outcomes: Iterable[Any], takedowns: Takedowns) -> Iterator[Any]:
    """Yield outcomes of a source, which stand together by record, without what is on the list.

    A document on it is a failure, which does not name it, and so are failures of one. An image whose address or
    original is on it has no usable address. Items that are neither documents nor failures yet pass as they are. A
    record that repeats the id of a document on the list comes after it, anywhere.
    """
    if not takedowns.entries:
        yield from outcomes
        return
    listed: dict[str, str] = {}
    for record_id, group in groupby(outcomes, key=_record_id):
        if not isinstance(record_id, str):
            yield from group
            continue
        found = list(group)
        matched = [takedowns.matches_candidate(each) if isinstance(each, CandidateDocument) else None for each in found]
        ids = (record_id, record_id.rpartition("/")[2])  # it may be a path that ends with the id
        entry = takedowns.matches_record(ids, (record_id,)) or listed.get(record_id)
        entry = next(filter(None, matched), entry)
        if entry:
            listed[record_id] = entry
        for each, match in zip(found, matched, strict=True):
            if isinstance(each, Failure):
                yield taken_down(each.stage, entry) if entry else each
            else:
                yield (
                    taken_down(Stage.SOURCES, match)
                    if match
                    else replace(each, images=tuple(_without_listed(image, takedowns) for image in each.images))
                )


def _without_listed(image: CandidateImage, takedowns: Takedowns) -> CandidateImage:
    """Return an image; of one that is on the list the address says so."""
    entry = takedowns.matches_image(image.original, image.uri, image.source or image.uri)
    return replace(image, uri=str(Unusable(Reason.TAKEN_DOWN, said(entry))), original="") if entry else image


def _record_id(outcome: object) -> str | None:
    if isinstance(outcome, Failure):
        return outcome.record_id
    return outcome.id if isinstance(outcome, CandidateDocument) else None


def read_takedowns(path: str | Path) -> Takedowns:
    """Return the list in a UTF-8 file: of a path, or of a URI that is no web address.

    Raises:
        NotFoundError: there is no such file.
        UsageError: a line cannot be read; the message names it.
    """
    try:
        with open_uri(str(path)) as stream:
            data = stream.read()
    except FileNotFoundError as problem:
        raise NotFoundError(f"takedown list {path}: no such file") from problem
    except OSError as problem:
        raise UsageError(f"takedown list {path}: cannot be read ({problem.strerror})") from problem
    return parse_takedowns(data.removeprefix(b"\xef\xbb\xbf").splitlines(), name=PurePath(path).name)


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
            text = line.decode().strip()
            text = (_COMMENT_OF_ID if text[:3].lower() == "id:" else _COMMENT).sub("", text).strip()
            entries |= {_entry(text)} if text else set()
        except UnicodeDecodeError as problem:
            raise UsageError(f"{name}:{number}: expected UTF-8, found byte {line[problem.start]:#04x}") from problem
        except ValueError as problem:
            raise UsageError(f"{name}:{number}: {problem}") from problem
    return Takedowns(tuple(sorted(entries)))


def _entry(text: str) -> str:
    """Return an entry in its canonical form; a `ValueError` says what is wrong with it."""
    if on_web(text):
        text = f"url:{text}"
    elif _FORMS["sha256"][0].fullmatch(text.lower()):
        text = f"sha256:{text}"
    kind, colon, value = (part.strip() for part in text.partition(":"))
    kind = kind.lower()
    if not colon or kind not in _KINDS:
        raise ValueError(f"expected {', '.join(f'{known}:' for known in _KINDS)} and a value, found {text!r}")
    if not value:
        raise ValueError(f"expected a value after '{kind}:', found nothing")
    if kind == "id":
        return f"id:{value}"
    if kind == "url":
        if key := url_key(value):
            return key
        raise ValueError(f"url: expected an http or https URL, found {value!r}")
    form, rule = _FORMS[kind]
    match = form.fullmatch(value.lower())
    host = host_of(f"http://{match[1]}") if match and kind == "domain" else ""
    if match is None or host is None:
        raise ValueError(f"{kind}: expected {rule}, found {value!r}")
    return f"domain:{host}" if kind == "domain" else f"{kind}:{match[0]}"


def named(argument: str) -> str:
    """Return what a person names as a line of a list: what has no kind and is neither a URL nor a hash is an id."""
    has_kind = argument.partition(":")[0].lower() in _KINDS and ":" in argument
    is_plain = has_kind or on_web(argument) or _FORMS["sha256"][0].fullmatch(argument.lower())
    return argument if is_plain else f"id:{argument}"


def _domains_of(key: str) -> Iterator[str]:
    """Yield the entry of the host of a URL's entry, and of each domain that it is in."""
    host = _HOST.match(key.removeprefix("url:https://"))
    labels = host[0].split(".") if host else []
    for start in range(len(labels)):
        yield f"domain:{'.'.join(labels[start:])}"


def url_key(url: str) -> str:
    """Return a URL's entry, the same for every spelling; what is no URL (a path) gives one that no list has: empty.

    http and https are one, as are spellings of a host (`parse_target`), a default port, a closing slash, and a
    character with its percent-encoding. The fragment goes; the query stays.
    """
    try:
        address, mark, query = normalise(url).partition("://")[2].partition("?")
    except FetchFailed:
        return ""
    return f"url:https://{address.rstrip('/')}{mark if query else ''}{query}"
