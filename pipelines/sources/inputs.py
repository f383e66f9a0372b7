"""What a source reads, and finding it before anything is read.

    a file                         as it is; `ARCHIVE!/MEMBER` is a file, too
    a folder, a tar, a zip         the published file in it, at whatever depth, compressed or not
    http://, https://              the same, once what is there is captured in raw/
    (images) http://, https://     an archive is captured; else a folder, whose pictures are fetched one by one

A source's settings say in `inputs()` which of them name what it reads. `find_inputs` returns the same settings with
paths and `ARCHIVE!/MEMBER` alone, which any worker can open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from pipelines.files import COMPRESSED, INSIDE, file_names, is_archive
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.records import WEB
from schemas.configs import require
from schemas.errors import UsageError
from schemas.failures import Failure
from schemas.lake import Folder

Capture = Callable[[str], Path]
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{1,8})*")


class Form(StrEnum):
    """How what a setting names is read, and so what it may be."""

    FILE = "file"  # streamed: in a folder, in an archive, compressed
    FILES = "files"  # the same, all that there are
    TREE = "tree"  # a folder or an archive, read as a whole
    ARRAY = "array"  # mapped into memory: a plain file
    IMAGES = "images"  # files by name: a folder, a tar, a zip, or the address of a folder on the web


@dataclass(frozen=True, slots=True)
class Input:
    """A setting that names what a source reads.

    Attributes:
        published: the names it has where it is published, the likeliest first.
        is_needed: whether the source can do nothing without it.
    """

    name: str
    form: Form = Form.FILE
    published: tuple[str, ...] = ()
    is_needed: bool = False


IMAGES = Input("images", Form.IMAGES)


def needed(name: str, *published: str, form: Form = Form.FILE) -> Input:
    """Return an input that the source can do nothing without."""
    return Input(name, form, published, is_needed=True)


class Settings(Protocol):
    """Settings of a source: a dataclass."""

    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what the source reads."""
        ...


S = TypeVar("S", bound=Settings)


def find_inputs(source: S, capture: Capture) -> S:
    """Return a source whose settings name files that are there.

    Args:
        source: as it was configured.
        capture: brings the file behind a URL and returns where it is.

    Raises:
        UsageError: a setting that is needed is empty, or what one names is not there.
    """
    found: dict[str, str | tuple[str, ...]] = {}
    for given in source.inputs():
        value = getattr(source, given.name)
        texts = (value,) if isinstance(value, str) else value
        if given.is_needed and not any(texts):
            expected = "expected the path of a file, a folder or an archive, or a URL"
            raise UsageError(f"source.{given.name}: {expected}; --set source.{given.name}=PATH")
        files = tuple(file for text in texts if text for file in _found(text, given, capture))
        found[given.name] = next(iter(files), "") if isinstance(value, str) else files
    return replace(source, **found)  # type: ignore[type-var]  # it is a dataclass


def named_inputs(source: Settings) -> list[str]:
    """Return every path that the settings of a source name, images on the web apart."""
    values = (getattr(source, given.name) for given in source.inputs())
    texts = (text for value in values for text in ((value,) if isinstance(value, str) else value))
    return [text for text in texts if text and not text.startswith(WEB)]


def path_settings(source: Settings) -> frozenset[str]:
    """Return the settings of a source that say where its files are, and not what they are."""
    return frozenset(given.name for given in source.inputs())


def web_address(root: str, name: str) -> str:
    """Return the URL of a file below a folder on the web, or where `{name}` says if the folder's URL has that."""
    quoted = quote(name, safe="" if ".." in name.split("/") else "/")  # a name leads to nothing above the folder
    return root.replace("{name}", quoted) if "{name}" in root else f"{root.rstrip('/')}/{quoted}"


def with_web_images(outcomes: Iterable[Any], root: str) -> Iterator[CandidateDocument | Failure]:
    """Yield outcomes whose image names have become URLs below a folder on the web."""
    for outcome in outcomes:
        if isinstance(outcome, CandidateDocument):
            uris = (uri if uri.startswith(WEB) else web_address(root, uri) for uri in outcome.image_uris)
            outcome = replace(outcome, image_uris=tuple(uris))  # noqa: PLW2901
        yield outcome


def is_language(code: str) -> bool:
    """Return whether a text has the form of a language code (BCP 47)."""
    return _LANGUAGE.fullmatch(code) is not None


def require_language(language: str) -> None:
    """Raise a `ConfigError` unless a setting is a language code."""
    require(
        is_language(language), field="source.language", value=language, rule="expected a language code such as 'en'"
    )


def require_share(name: str, value: float) -> None:
    """Raise a `ConfigError` unless a setting is a share below 1."""
    require(0 <= value < 1, field=f"source.{name}", value=value, rule="must be in [0, 1)")


def require_least(source: object, **least: int) -> None:
    """Raise a `ConfigError` for the first setting that is below its least value."""
    for name, bound in least.items():
        value = getattr(source, name)
        require(value >= bound, field=f"source.{name}", value=value, rule=f"must be at least {bound}")


def require_placeholder(pattern: str, placeholder: str) -> None:
    """Raise a `ConfigError` unless an image pattern has a placeholder."""
    is_there = placeholder in pattern
    require(is_there, field="source.image_pattern", value=pattern, rule=f"must contain {placeholder}")


def _found(text: str, given: Input, capture: Capture) -> list[str]:
    """Return the files that a setting's text names."""
    uri, inside, member = text.partition(INSIDE)
    if uri.startswith(WEB):
        if given.form is Form.IMAGES and not is_archive(uri.partition("?")[0]):
            return [text]
        uri = str(capture(uri))
    _check_there(uri, given)
    if inside:
        return [f"{uri}{INSIDE}{member}"]
    is_folder = Path(uri).is_dir()
    if given.form not in (Form.FILE, Form.FILES) or not (is_folder or is_archive(uri)):
        return [uri]
    names = _published(file_names(uri), given.published)
    if not names:
        raise UsageError(f"source.{given.name} = {text!r}: expected {' or '.join(given.published)} in it, found none")
    return [f"{uri}{'/' if is_folder else INSIDE}{name}" for name in (names if given.form is Form.FILES else names[:1])]


def _check_there(uri: str, given: Input) -> None:
    folder, _, name = uri.rpartition("/")
    if not (Folder(folder).exists(name) if "://" in uri else Path(uri).exists()):
        raise UsageError(f"source.{given.name} = {uri!r}: no such file")
    if given.form is Form.ARRAY and (not Path(uri).is_file() or is_archive(uri)):
        raise UsageError(f"source.{given.name} = {uri!r}: expected a plain file on a file system")


def _published(names: Iterable[str], wanted: tuple[str, ...]) -> list[str]:
    """Return the files of the likeliest name that any has; the one nearest to the root comes first."""
    by_name: dict[str, list[str]] = {name: [] for name in wanted}
    for path in names:
        base = PurePosixPath(path).name
        plain = base.removesuffix(next((suffix for suffix in COMPRESSED if base.endswith(suffix)), ""))
        for name in wanted:
            if fnmatchcase(plain, name):
                by_name[name].append(path)
    return sorted(next((paths for paths in by_name.values() if paths), []), key=_depth_first)


def _depth_first(path: str) -> tuple[int, str]:
    return path.count("/"), path
