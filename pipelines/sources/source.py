"""What a source is to a build: settings that say what can be read of it apart, and how. A build asks nothing else.

    shards -> read, each by one worker -> select one of each id -> fetch, all by one worker -> documents, failures
                                                                 `-> complete, each by any worker -'

A source of files has `read` alone. Steps that a source does not have are None. Records that are asked of hosts are
fetched by `fetch_records`: one request each, and what is read of its answer.

What it reads is found before anything is read:

    a file                         as it is; `ARCHIVE!/MEMBER` is a file, too
    a folder, a tar, a zip         the published file in it, at whatever depth, compressed or not; none is hidden
    http://, https://              the same, once what is there is captured in raw/
    (images) http://, https://     an archive is captured; else a folder, whose pictures are fetched one by one

A source's settings say in `inputs` which of them name what it reads. `find_inputs` returns the same settings with
paths and `ARCHIVE!/MEMBER` alone, which any worker can open.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from msgspec import Meta

from pipelines.embedded import on_web
from pipelines.files import COMPRESSED, INSIDE, BrokenInputError, is_archive, is_pattern
from pipelines.ledger import LedgerRow, Read, append
from pipelines.recipe import BuildConfig
from pipelines.settings import HttpConfig
from pipelines.sources.own_files import OwnFiles
from pipelines.sources.records import CandidateDocument, outcomes_of
from pipelines.sources.takedowns import Takedowns
from pipelines.web.client import Client, process_client, usable
from pipelines.web.downloads import CapturedFile, capture_file
from pipelines.web.pool import fetch_all
from pipelines.web.requests import FetchFailed, Outcome, Request, Response
from schemas.configs import Outside, Settings, outside
from schemas.failures import Failure
from schemas.lake import Folder, Lake, folder_of
from schemas.messages import BuildError, UsageError

T = TypeVar("T")
R = TypeVar("R")
Paths = TypeVar("Paths", str, tuple[str, ...])
Outcomes = Iterator[CandidateDocument | Failure]
Capture = Callable[[str], Path]
_LANGUAGE = r"[a-z]{2,3}(-[A-Za-z0-9]{1,8})*"
Language = Annotated[str, Meta(pattern=rf"^{_LANGUAGE}\Z", description="expected a language code such as 'en'")]


@dataclass(frozen=True, slots=True)
class Input:
    """A setting that names what a source reads.

    Attributes:
        form: how that is read, and so what it may be. A `file` is streamed, and may lie in a folder, in an archive,
            compressed; `files` are all such that there are; so are `shards`, which may themselves be archives. A
            `tree` is a folder or an archive, read as a whole, a file, or a pattern of paths. An `array` is mapped into
            memory: a plain file. `images` are files by name: a folder, a tar, a zip, or the address of a folder on the
            web.
        published: the names it has where it is published, the likeliest first. Of shards those of all names are read;
            of two that differ in their name's end alone, the likelier one; it is an error where only capitals differ.
            `!` begins the name of what is none.
        is_needed: whether the source can do nothing without it.
        is_one_kind: whether shards of two names in one folder are refused, since they may hold the same twice.
    """

    name: str
    form: Literal["file", "files", "shards", "tree", "array", "images"] = "file"
    published: tuple[str, ...] = ()
    is_needed: bool = False
    is_one_kind: bool = False


IMAGES = Input("images", "images")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a step of a source is given by the build, in a worker.

    Attributes:
        raw: answers of hosts.
        ledger: of the build.
        takedowns: what must not be asked for.
        min_images: an article with fewer is left out before it is parsed.
    """

    http: HttpConfig
    raw: Folder
    ledger: Folder
    takedowns: Takedowns
    min_images: int

    @property
    def client(self) -> Client:
        """Return this process's client."""
        return process_client(self.http, self.raw)

    def note(self, asked: Iterable[tuple[str, str]]) -> None:
        """Write into the ledger which record's page is asked for at which address, before it is."""
        append(self.ledger, (LedgerRow(Read.DOCUMENT, key, None, key, address) for key, address in asked))


class Source(Settings):
    """Base of the settings of a source: a frozen dataclass with `inputs`: some `Input`.

    Attributes:
        select: of (id, the items of this id, context), yields the item that is kept, and a failure for each other.
            Items have an `id`.
        fetch: of (items, context), yields the documents of items that are asked of a host, and failures.
        complete: of (item, context), yields the document of an item, and failures.
    """

    __slots__ = ()
    part: ClassVar[str] = "source"
    select: ClassVar[Callable[..., Iterator[Any]] | None] = None
    fetch: ClassVar[Callable[..., Outcomes] | None] = None
    complete: ClassVar[Callable[..., Outcomes] | None] = None

    @property
    def environment(self) -> Sequence[str]:
        """Return the names of the environment variables that must be set."""
        return ()

    @property
    def given_features(self) -> tuple[str, str] | None:
        """Return the column and the path of the array of vectors that it brings in place of pictures, if it does."""
        return None

    def remarks(self) -> Iterator[str]:
        """Yield what a user is told of the files that are read; they are there.

        Raises:
            UsageError: none of them can be read.
        """
        return iter(())

    def shards(self) -> Sequence[str]:
        """Return names of what different workers may read."""
        return (type(self).__name__,)

    def read_shard(self, shard: str, context: Context) -> Iterator[Any]:
        """Yield what a shard begins with: documents, or items for the next step; and failures."""
        return self.read()

    def read(self) -> Outcomes:
        """Yield all documents in order, and a failure for each record that cannot be used."""
        return iter(())


def fetch_records(
    items: Iterable[tuple[str, T]],
    *,
    client: Client,
    request_of: Callable[[T], Request],
    read: Callable[[T, Response], Iterable[R | Failure]],
    note: Callable[[Iterable[tuple[str, str]]], None] | None = None,
) -> Iterator[R | Failure]:
    """Yield what is read of the answer to each item's request, or why there is none, in the order of the answers.

    Args:
        items: what failures are filed under, and the item; several may ask for the same address.
        client: fetches, with as many connections as one host may have.
        request_of: returns an item's request.
        read: returns what an answer gives; what it raises is the failure row of this item alone.
        note: is called with what failures are filed under and the address of each item before any of them is asked for.
    """
    waiting: dict[str, list[tuple[str, T]]] = {}
    requests: dict[str, Request] = {}
    for record_id, item in items:
        request = request_of(item)
        requests[request.url] = request
        waiting.setdefault(request.url, []).append((record_id, item))
    if note is not None:
        note((record_id, address) for address, group in waiting.items() for record_id, _ in group)
    threads = client.config.connections_per_host
    answers = fetch_all(client, requests.values(), connections=threads, connections_per_host=threads)
    for request, outcome in answers:

        def outcomes(item: T, _: str, outcome: Outcome = outcome) -> Iterable[R | Failure]:
            return read(item, usable(outcome))

        yield from outcomes_of(waiting.pop(request.url), outcomes)


def input_path(default: Paths) -> Paths:
    """Return the field of a setting that `inputs` name: a version's name has the content of what it reads, not this."""
    return outside(default, Outside.PATH)


def find_inputs(source: Any, capture: Capture) -> Any:
    """Return a source whose settings name files that are there.

    Args:
        source: as it was configured.
        capture: brings the file behind a URL and returns where it is.

    Raises:
        UsageError: a setting that is needed is empty, or what one names is not there.
    """
    found: dict[str, str | tuple[str, ...]] = {}
    for given in source.inputs:
        texts = _texts(source, given)
        if given.is_needed and not texts:
            expected = "expected the path of a file, a folder or an archive, or a URL"
            raise UsageError(f"source.{given.name}: {expected}; --set source.{given.name}=PATH")
        files = tuple(file for text in texts for file in _found(text, given, capture))
        found[given.name] = "".join(files) if isinstance(getattr(source, given.name), str) else files
    return replace(source, **found)


def with_inputs(
    config: BuildConfig, lake: Lake, *, say: Callable[[str], None]
) -> tuple[BuildConfig, tuple[CapturedFile, ...]]:
    """Return a configuration whose source names files that are there, and the files that were captured for it.

    Raises:
        UsageError: a source's file is not named or not there.
        BuildError: it cannot be fetched.
    """
    captured: dict[str, CapturedFile] = {}

    def capture(url: str) -> Path:
        if url not in captured:
            say(f"input: {url}")
            captured[url] = capture_input(url, config, lake)
        return captured[url].path

    source = find_inputs(config.source, capture)
    for remark in source.remarks():
        say(remark)
    return replace(config, source=source), tuple(captured.values())


def capture_input(url: str, config: BuildConfig, lake: Lake) -> CapturedFile:
    """Return a file of the web as it is kept in a lake, fetched where it is not.

    Raises:
        BuildError: it cannot be fetched.
    """
    try:
        return capture_file(process_client(config.http, lake.raw), url)
    except FetchFailed as problem:
        raise BuildError(f"{url}: {problem}") from problem


def image_root(source: Any) -> str:
    """Return what a source's image names are looked up in: by default the folder or archive a user's file is in."""
    images, documents, archive = (getattr(source, name, "") for name in ("images", "documents", "archive"))
    documents = documents or archive
    if on_web(images):
        return "."
    if images or not documents:
        return images or "."
    if not isinstance(documents, str):
        return shard_root(documents)
    return OwnFiles(documents).root


def shard_root(shards: Sequence[str]) -> str:
    """Return the folder that all shards are below."""
    uris = [shard.partition(INSIDE)[0] for shard in shards]
    folders = [uri if "://" in uri else str(Path(uri).absolute()) for uri in uris]
    common = posixpath.commonpath([folder.rpartition("/")[0] for folder in folders])
    return common.replace(":/", "://", 1) if "://" in folders[0] and "://" not in common else common


def is_language(code: str) -> bool:
    """Return whether a text has the form of a language code (BCP 47)."""
    return re.fullmatch(_LANGUAGE, code) is not None


def _texts(source: Any, given: Input) -> list[str]:
    """Return what a setting names: of one that lists several, each."""
    value = getattr(source, given.name)
    return [text for text in ((value,) if isinstance(value, str) else value) if text]


def _found(text: str, given: Input, capture: Capture) -> list[str]:
    """Return the files that a setting's text names."""
    uri, inside, member = text.partition(INSIDE)
    published = given.published
    if on_web(uri):
        if given.form == "images" and not is_archive(uri.partition("?")[0]):
            return [text]
        uri = str(capture(uri))
    folder, _, name = uri.rpartition("/")
    if given.form == "shards" and "*" in name and not inside:
        uri, published = folder, (name,)
        folder, _, name = uri.rpartition("/")
    if given.form == "tree" and is_pattern(text):
        return [text]
    above, leaf = folder_of(uri)
    if not (above.exists(leaf) if "://" in uri else Path(uri).exists()):
        raise UsageError(f"source.{given.name} = {uri!r}: no such file")
    if not ("://" in uri or Path(uri).is_file() or Path(uri).is_dir()):
        raise UsageError(f"source.{given.name} = {uri!r}: expected a file or a folder, found a pipe or a device")
    if given.form == "array" and (not Path(uri).is_file() or is_archive(uri)):
        raise UsageError(f"source.{given.name} = {uri!r}: expected a plain file on a file system")
    is_folder = Folder(uri).is_folder()
    if inside:
        return [f"{uri}{INSIDE}{member}"]
    if given.form not in ("file", "files", "shards") or not (is_folder or (given.form != "shards" and is_archive(uri))):
        return [uri]
    try:
        there = OwnFiles(uri).names
    except BrokenInputError as problem:
        raise UsageError(f"source.{given.name} = {text!r}: {problem}") from problem
    names = _shards(there, published, given, text) if given.form == "shards" else _published(there, published)
    if not names:
        expected = " or ".join(name for name in published if not name.startswith("!"))
        raise UsageError(f"source.{given.name} = {text!r}: expected {expected} in it, found none")
    root = f"{uri.rstrip('/')}/" if is_folder else f"{uri}{INSIDE}"
    return [f"{root}{name}" for name in (names[:1] if given.form == "file" else names)]


def _published(paths: Iterable[str], wanted: tuple[str, ...]) -> list[str]:
    """Return the files of the likeliest name that any has; the one nearest to the root comes first."""
    ranked = sorted(paths, key=_depth_first)
    for name in wanted:
        if found := [path for path in ranked if _is_called(_plain_name(path), name)]:
            return found
    return []


def _shards(paths: Iterable[str], wanted: tuple[str, ...], given: Input, text: str) -> list[str]:
    """Return the files of any of the names, as `Input.published` says."""
    chosen: dict[str, tuple[int, str]] = {}
    for path in sorted(paths, key=_depth_first):
        plain = _plain_name(path)
        rank = next((rank for rank, name in enumerate(wanted) if _is_called(plain, name.lstrip("!"))), None)
        if rank is not None and not wanted[rank].startswith("!"):
            ending = wanted[rank].lstrip("!*").lower()
            first = plain[: -len(ending)] if plain.lower().endswith(ending) else plain
            stem = f"{path.removesuffix(PurePosixPath(path).name)}{first}"
            if (other := chosen.get(stem, (rank, path)))[0] == rank and _plain_name(other[1]) != plain:
                raise UsageError(
                    f"source.{given.name} = {text!r}: expected one file of a name, found {other[1]} and {path}; "
                    "rename one of them"
                )
            chosen[stem] = min(other, (rank, path))
    kinds = sorted({rank for rank, _ in chosen.values()})
    if given.is_one_kind and len(kinds) > 1:
        found = " and ".join(wanted[rank] for rank in kinds)
        hint = f"name one of them: source.{given.name}={text.rstrip('/')}/{wanted[kinds[0]]}"
        raise UsageError(f"source.{given.name} = {text!r}: expected shards of one kind, found {found}; {hint}")
    return [path for _, path in chosen.values()]


def _is_called(name: str, pattern: str) -> bool:
    """Return whether a name is of a pattern, in small letters or capitals."""
    return fnmatchcase(name.lower(), pattern.lower())


def _plain_name(path: str) -> str:
    """Return a file's name without folders and without what compression adds."""
    name = PurePosixPath(path)
    return name.stem if name.suffix.lower() in COMPRESSED else name.name


def _depth_first(path: str) -> tuple[int, str]:
    return path.count("/"), path
