"""Which files hold a user's documents: one that is named, those that a pattern fits, those of a folder or an archive.

    own/documents.jsonl    own/*.md    own/**/*.html    own    own.zip    book.epub    s3://bucket/own

In a folder the ending of a name says what a file is, and hidden files are passed over. A folder with JSON Lines is read
for these alone: pages beside them are what they were made of. A file that is named is read whatever its ending: by its
first bytes, then.
"""

import os
import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path, PurePosixPath

from pipelines.files import COMPRESSED, INSIDE, BrokenInputError, file_names, input_file, is_archive, is_pattern
from pipelines.named_files import is_picture
from schemas.lake import Folder
from schemas.messages import UsageError

_WILD = frozenset("*?[")
_HEAD_BYTES = 2048


class Kind(StrEnum):
    """What a file of documents is."""

    JSON = "JSON Lines"
    HTML = "HTML"
    MARKDOWN = "Markdown"
    EPUB = "EPUB"


ENDINGS = {
    ".jsonl": Kind.JSON,
    ".ndjson": Kind.JSON,
    ".html": Kind.HTML,
    ".htm": Kind.HTML,
    ".xhtml": Kind.HTML,
    ".md": Kind.MARKDOWN,
    ".markdown": Kind.MARKDOWN,
    ".epub": Kind.EPUB,
}
_OTHER_FORMS = {  # how files begin that are none of these
    b"%PDF": "a PDF",
    b"PK\x03\x04": "a zip, as Word and others write",
    b"\xff\xd8\xff": "a JPEG picture",
    b"\x89PNG": "a PNG picture",
    b"GIF8": "a GIF picture",
    b"PAR1": "a Parquet file",
    b"{\\rtf": "an RTF text",
}


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file of documents.

    Attributes:
        name: path relative to the root, with slashes: ids begin with it.
        address: path, URI or `ARCHIVE!/MEMBER`.
    """

    name: str
    address: str
    kind: Kind


@dataclass(frozen=True)
class OwnFiles:
    """The files that an address names.

    Attributes:
        address: of a file, a folder or an archive, or a pattern of paths.
    """

    address: str

    @cached_property
    def root(self) -> str:
        """Return the folder or archive that names are relative to."""
        uri, inside, _ = self.address.partition(INSIDE)
        if is_pattern(self.address):
            parts = PurePosixPath(self.address).parts
            fixed = next(number for number, part in enumerate(parts) if _WILD & {*part})
            return str(Path(*parts[:fixed]).absolute())
        if inside or is_archive(uri):
            return uri
        is_folder = Folder(uri).is_folder() if "://" in uri else os.path.isdir(uri)  # noqa: PTH112
        folder = uri if is_folder else uri.rpartition("/")[0] or ("." if "/" not in uri else "/")
        return folder if "://" in folder else str(Path(folder).absolute())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return every file of the folder or archive, hidden ones and links apart; of a file that is named, itself."""
        uri, inside, member = self.address.partition(INSIDE)
        if inside:
            return (member,)
        if is_pattern(self.address):
            found = Path(self.root).glob(str(Path(self.address).absolute().relative_to(self.root)))
            paths = (path for path in found if path.is_file() and not path.is_symlink())
            names = sorted(path.relative_to(self.root).as_posix() for path in paths)
            return tuple(name for name in names if not _is_hidden(name))
        if not is_archive(uri) and self.root != (uri if "://" in uri else str(Path(uri).absolute())):
            return (uri.rpartition("/")[2],)
        return tuple(sorted(name for name in file_names(self.root) if not _is_hidden(name)))

    @cached_property
    def files(self) -> tuple[OwnFile, ...]:
        """Return those that hold documents, in the order of their names.

        Raises:
            UsageError: there is none.
        """
        is_named = len(self.names) == 1 and self.names[0] == self.address.rpartition("/")[2]
        kinds = {name: _kind(name) for name in self.names}
        if is_named or is_pattern(self.address):
            kinds = {name: kind or _sniffed(self.at(name)) for name, kind in kinds.items()}
        elif Kind.JSON in kinds.values():
            kinds = {name: kind for name, kind in kinds.items() if kind is Kind.JSON}
        found = tuple(OwnFile(name, self.at(name), kind) for name, kind in kinds.items() if kind is not None)
        if not found:
            expected = f"expected {', '.join(Kind)} ({', '.join(ENDINGS)})"
            raise UsageError(
                f"source.documents = {self.address!r}: {expected}, found {_counted(self.names) or 'no file'}"
            )
        return found

    @cached_property
    def by_last_name(self) -> Mapping[str, str]:
        """Return the files that no other has the last name of, by that: as Obsidian finds pictures."""
        counts = Counter(map(posixpath.basename, self.names))
        return {last: name for name in self.names if counts[last := posixpath.basename(name)] == 1}

    def at(self, name: str) -> str:
        """Return the address of a file by its name."""
        return f"{self.root}{INSIDE}{name}" if is_archive(self.root) else f"{self.root.rstrip('/')}/{name}"

    def remarks(self) -> Iterator[str]:
        """Yield a line that says what is read, and what is not; of a single file none. Raises as `files`."""
        read = {file.name for file in self.files}
        if len(self.names) > 1:
            other = [name for name in self.names if name not in read and not is_picture(name)]
            left = f"; not read: {_counted(other)}" if other else ""
            yield f"{self.address}: {_counted(sorted(read))}{left}"

    def has(self, name: str) -> bool:
        """Return whether a picture may be at a name below the root."""
        if "://" in self.root:
            return True
        if is_archive(self.root):
            return name in self.names
        return os.path.isfile(os.path.join(self.root, name))  # noqa: PTH113, PTH118


def check_form(file: OwnFile, head: bytes) -> None:
    """Raise where a file's first bytes are of no document.

    Raises:
        BrokenInputError: it is empty, or of another format.
    """
    found = next((form for start, form in _OTHER_FORMS.items() if head.startswith(start)), "")
    if not head.strip():
        found = "an empty file"
    elif not found and b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        found = "bytes that are no text"
    elif not found and _kind(file.name) is None and head.lstrip()[:1] not in b"{[<":
        found = f"a text; by their endings are read {', '.join(ENDINGS)}"
    if found:
        raise BrokenInputError(f"{file.name}: expected {file.kind}, found {found}", file.name)


def _kind(name: str) -> Kind | None:
    path = PurePosixPath(name)
    is_compressed = path.suffix in COMPRESSED
    kind = ENDINGS.get(PurePosixPath(path.stem if is_compressed else path.name).suffix.lower())
    return kind if kind is Kind.JSON or not is_compressed else None  # a page is read as it stands


def _sniffed(address: str) -> Kind:
    """Return what a file is whose ending does not tell it."""
    try:
        with input_file(address).open() as stream:
            head = stream.read(_HEAD_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n")
    except BrokenInputError:
        return Kind.JSON
    return Kind.HTML if head.startswith(b"<") else Kind.JSON


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in name.split("/"))


def _counted(names: tuple[str, ...] | list[str]) -> str:
    """Return how many files have which ending.

    >>> _counted(["a.pdf", "b/c.pdf", "README"])
    'a.pdf and 1 more .pdf, README'
    """
    counts = Counter(posixpath.splitext(name)[1] for name in names)
    first = {posixpath.splitext(name)[1]: name for name in reversed(names)}
    return ", ".join(
        f"{first[ending]} and {count - 1} more {ending}".rstrip() if count > 1 else first[ending]
        for ending, count in counts.items()
    )
