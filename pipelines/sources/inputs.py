"""Finding what the settings of a source name, before anything is read.

    a file                         as it is; `ARCHIVE!/MEMBER` is a file, too
    a folder, a tar, a zip         the published file in it, at whatever depth, compressed or not
    http://, https://              the same, once what is there is captured in raw/
    (images) http://, https://     an archive is captured; else a folder, whose pictures are fetched one by one

What comes out are the same settings with paths and `ARCHIVE!/MEMBER` alone, which any worker can open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from pipelines.config import DiySource, DocumentsSource, DumpOrApi, Source
from pipelines.sources.openings import COMPRESSED, INSIDE, is_archive
from pipelines.sources.readers import READERS, WEB, Form, Input
from pipelines.sources.trees import file_names
from schemas.errors import UsageError
from schemas.lake import Folder

Capture = Callable[[str], Path]


def find_inputs(source: Source, capture: Capture) -> Source:
    """Return a source whose settings name files that are there.

    Args:
        source: as it was configured.
        capture: brings the file behind a URL and returns where it is.

    Raises:
        UsageError: a setting that is needed is empty, or what one names is not there.
    """
    if isinstance(source, DiySource) and source.kind is not DumpOrApi.DUMP:
        return source
    _check_needed(source)
    if isinstance(source, DocumentsSource) and not source.images and source.documents.startswith(WEB):
        source = replace(source, images=source.documents.rpartition("/")[0])
    found: dict[str, str | tuple[str, ...]] = {}
    for given in READERS[type(source)].inputs:
        value = getattr(source, given.name)
        if isinstance(value, str):
            found[given.name] = next(iter(_places(value, given, source, capture)), "")
        else:
            found[given.name] = tuple(place for text in value for place in _places(text, given, source, capture))
    return replace(source, **found)  # type: ignore[arg-type]  # each has the type it had


def named_inputs(source: Source) -> list[str]:
    """Return every path that the settings of a source name, images on the web apart."""
    if isinstance(source, DiySource) and source.kind is not DumpOrApi.DUMP:
        return []
    values = (getattr(source, given.name) for given in READERS[type(source)].inputs)
    places = (place for value in values for place in ((value,) if isinstance(value, str) else value))
    return [place for place in places if place and not place.startswith(WEB)]


def _check_needed(source: Source) -> None:
    reader = READERS[type(source)]
    needed = [given for given in reader.inputs if given.is_needed]
    missing = [given for given in needed if not any(getattr(source, given.name))]
    if missing and (reader.needs_all or len(missing) == len(needed)):
        name = missing[0].name
        raise UsageError(
            f"source.{name}: expected the path of a file, a folder or an archive, or a URL; --set source.{name}=PATH"
        )


def _places(text: str, given: Input, source: Source, capture: Capture) -> list[str]:
    """Return the files that a setting's text names."""
    if not text:
        return []
    place, inside, member = text.partition(INSIDE)
    if place.startswith(WEB):
        if given.form is Form.IMAGES and not is_archive(place.partition("?")[0]):
            return [text]
        place = str(capture(place))
    _check_there(place, given)
    if inside:
        return [f"{place}{INSIDE}{member}"]
    if given.form not in (Form.FILE, Form.FILES) or not (Path(place).is_dir() or is_archive(place)):
        return [place]
    wanted = [name.format_map(_Properties(source)) for name in given.published]
    names = _published(file_names(place), wanted)
    if not names:
        raise UsageError(f"source.{given.name} = {text!r}: expected {' or '.join(wanted)} in it, found none")
    separator = "/" if Path(place).is_dir() else INSIDE
    return [f"{place}{separator}{name}" for name in (names if given.form is Form.FILES else names[:1])]


def _check_there(place: str, given: Input) -> None:
    is_there = _is_there(place)
    if given.form is Form.ARRAY and is_there and ("://" in place or not Path(place).is_file() or is_archive(place)):
        raise UsageError(f"source.{given.name} = {place!r}: expected a plain file on a file system")
    if not is_there:
        raise UsageError(f"source.{given.name} = {place!r}: no such file")


def _is_there(place: str) -> bool:
    if "://" not in place:
        return Path(place).exists()
    folder, _, name = place.rpartition("/")
    return Folder(folder).exists(name)


class _Properties(dict[str, str]):
    """The properties of a source by name, for `str.format_map`."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source

    def __missing__(self, name: str) -> str:
        return str(getattr(self._source, name))


def _published(names: Iterable[str], wanted: list[str]) -> list[str]:
    """Return the files of the likeliest name that any has; the one nearest to the root comes first."""
    by_name: dict[str, list[str]] = {name: [] for name in wanted}
    for path in names:
        for name in wanted:
            if fnmatchcase(_uncompressed(PurePosixPath(path).name), name):
                by_name[name].append(path)
    found = next((paths for paths in by_name.values() if paths), [])
    return sorted(found, key=_depth_first)


def _depth_first(path: str) -> tuple[int, str]:
    return path.count("/"), path


def _uncompressed(name: str) -> str:
    ending = next((suffix for suffix in COMPRESSED if name.endswith(suffix)), "")
    return name.removesuffix(ending)
