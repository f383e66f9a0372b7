"""Records that somebody else wrote, and the candidate documents they become.

A source iterates over records, each with where it is in its file (`articles.jsonl:7`), and gives `outcomes_of` a
function that makes documents of one; `source.fetch_records` does the same with the answers of a host. What that
function raises is the failure row of this record alone. What types a record's fields have is for `fields.py`.

An image of a candidate is still an address (`pipelines.embedded`). The images stage turns addresses into content
hashes; `pipelines.documents.rules` then makes a `Document` of it. Where a record names no address that can be used,
`unusable` gives one that says why: the image is then a failure of the images stage, and costs its document no more.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from pipelines.embedded import Unusable, Web, is_file_name, on_web, parse_address
from pipelines.files import MAX_LINE_BYTES, BrokenInputError, input_file, read_lines
from schemas.documents import UNDETERMINED, Given, Link, Provenance, Role, Sentence, Split
from schemas.failures import Failure, Reason, Rejection, Stage, unexpected
from schemas.metadata import Metadata
from schemas.tables import travels

T = TypeVar("T")
R = TypeVar("R")
MAX_ADDRESS = 4096  # characters of the address of an image
_ESCAPED = re.compile("[\udc80-\udcff]")  # a byte that is not UTF-8, as Python's surrogateescape has it
_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
# Quotes and dashes (U+2018 and so on) of which published files kept the lower half alone.
_HALVES = {0x13: "\u2013", 0x14: "\u2014", 0x18: "\u2018", 0x19: "\u2019", 0x1C: "\u201c", 0x1D: "\u201d"}


@travels
@dataclass(frozen=True, slots=True)
class CandidateImage:
    """An image of a candidate.

    Attributes:
        uri: its address.
        source: of one that is embedded in a file, the address it came from, which is kept in place of that in the file.
        licence: where the source states it.
        metadata: what the source says of it.
        after: how many of the document's sentences stand before it (`schemas.documents`); None: unknown.
        original: of a copy that this project exported, the SHA-256 of the bytes that it was made of; else empty.
    """

    uri: str
    source: str | None = None
    licence: str | None = None
    metadata: Metadata | None = None
    after: int | None = None
    original: str = ""


@travels
@dataclass(frozen=True, slots=True)
class CandidateDocument:
    """A document whose images are addresses: what every source yields and the documents stage filters.

    Attributes:
        links: ground truth over `sentences` and `images` (None: unknown), as indices from 0.
        split: where the source itself says; None leaves it to the splits stage.
        given: what the corpus says by a model of its own, over `sentences` and `images`.
        sentence_numbers: of each of `sentences`, its index in the source's list (`schemas.documents`); empty: its own.
        image_numbers: of each of `images`, likewise.
    """

    id: str
    dataset: str
    sentences: tuple[Sentence, ...]
    images: tuple[CandidateImage, ...]
    links: tuple[Link, ...] | None
    provenance: Provenance
    language: str = UNDETERMINED
    split: Split | None = None
    given: Given | None = None
    sentence_numbers: tuple[int, ...] = ()
    image_numbers: tuple[int, ...] = ()


def addresses_of(candidate: CandidateDocument) -> list[str]:
    """Return the addresses of a candidate's images, each once."""
    return sorted({image.uri for image in candidate.images})


class FieldError(Rejection, ValueError):
    """A field is absent or has another type than the published one."""

    def __str__(self) -> str:
        return self.message


def unusable(problem: Rejection) -> str:
    """Return the address of an image that has none, as a field of its record says."""
    return str(Unusable(problem.reason, problem.message))


def stated_address(text: str | None, where: str) -> str:
    """Return the address that a record states: a URL as it is, or the name of a file below the images of its source.

    Raises:
        FieldError: as `file_name`.
    """
    address = (text or "").strip()
    return address if on_web(address) else file_name(address, where)


def file_name(text: str | None, where: str) -> str:
    """Return the name of a file below the images of a source; that it stays there is for `read_named` to see to.

    Raises:
        FieldError: MISSING_FIELD: it is absent or blank; BROKEN_RECORD: it is an address of another kind.
    """
    name = (text or "").strip()
    if not name:
        raise FieldError(Reason.MISSING_FIELD, f"{where}: expected the name of a file, found none")
    if not is_file_name(name):
        raise FieldError(Reason.BROKEN_RECORD, f"{where}: expected the name of a file, found {name[:80]!r}")
    return name


def web_url(url: str, where: str) -> str:
    """Return an http or https URL.

    Raises:
        FieldError: BROKEN_RECORD: it is none.
    """
    if not on_web(url):
        raise FieldError(Reason.BROKEN_RECORD, f"{where}: expected an http or https URL, found {url[:80]!r}")
    return url


def with_addresses(outcomes: Iterable[Any], root: str) -> Iterator[Any]:
    """Yield outcomes of a source whose addresses of images can be asked for and kept.

    Where the images' root is a folder on the web, names of files have become URLs below it (`web_address`). An address
    longer than any URL, such as a picture in a `data:` address, is unusable.
    """
    for outcome in outcomes:
        if isinstance(outcome, CandidateDocument):
            images = tuple(_usable(image, root) for image in outcome.images)
            yield outcome if images == outcome.images else replace(outcome, images=images)
        else:
            yield outcome


def _usable(image: CandidateImage, root: str) -> CandidateImage:
    uri = image.uri
    if on_web(root) and not isinstance(parse_address(uri), Web | Unusable):
        uri = web_address(root, uri)
    if len(uri) > MAX_ADDRESS:
        message = f"expected an address of at most {MAX_ADDRESS} characters, found {len(uri)}: {uri[:80]!r}"
        uri = unusable(FieldError(Reason.BROKEN_RECORD, message))
    source = None if len(image.source or "") > MAX_ADDRESS else image.source
    return image if (uri, source) == (image.uri, image.source) else replace(image, uri=uri, source=source)


def web_address(root: str, name: str) -> str:
    """Return the URL of a file below a folder on the web, or where `{name}` says if the folder's URL has that."""
    quoted = quote(name, safe="" if ".." in name.split("/") else "/")  # a name leads to nothing above the folder
    return root.replace("{name}", quoted) if "{name}" in root else f"{root.rstrip('/')}/{quoted}"


def rejected(record_id: str, reason: Reason, message: str, *, image: int | None = None) -> Failure:
    """Return the failure row of a record, or of the image at a position in it."""
    return Failure(Stage.SOURCES, record_id, reason, message, image=image)


def outcomes_of(
    records: Iterable[tuple[str, T | FieldError]],
    read: Callable[[T, str], Iterable[R | Failure]],
    identify: Callable[[T], str | None] | None = None,
) -> Iterator[R | Failure]:
    """Yield what each record gives, or one failure row for a record that cannot be used.

    Args:
        records: where each is in its file, and what it is, or why it is nothing.
        read: returns a record's outcomes, given what to file failures under; raises FieldError for a bad one.
        identify: returns a record's own id, which failures are filed under, or None where it may lack one and where
            it is in its file will do; raises FieldError where it must have one.
    """
    try:
        for record_id, record in records:
            try:
                if isinstance(record, FieldError):
                    raise record
                record_id = (identify(record) if identify else None) or record_id  # noqa: PLW2901 - its own
                outcomes = list(read(record, record_id))
            except Rejection as problem:
                outcomes = [problem.failure(record_id)]
            except Exception as problem:  # noqa: BLE001 - the border of the stage
                outcomes = [unexpected(problem, stage=Stage.SOURCES, record_id=record_id)]
            yield from outcomes
    except BrokenInputError as problem:
        yield problem.failure()


def sentence(text: str, role: Role = Role.SENTENCE) -> Sentence:
    """Return a sentence in one line: white space becomes single spaces, a lost apostrophe one again."""
    plain = text if text.isprintable() else text.translate(_HALVES)
    return Sentence(" ".join(plain.split()), role)


def linked(
    pairs: Iterable[tuple[int, int]], sentences: Sequence[bool], images: Sequence[bool]
) -> tuple[tuple[Link, ...], list[str]]:
    """Return the links between what is kept, numbered as that is and each once, and of those that lead nowhere, where.

    Args:
        pairs: the sentence and the image of each link, as numbers from 0.
        sentences: of each, whether it is kept.
        images: the same.
    """
    texts_kept, images_kept = (list(accumulate(kept)) for kept in (sentences, images))
    links: dict[Link, None] = {}
    problems: list[str] = []
    for text, image in pairs:
        if not (0 <= text < len(sentences) and 0 <= image < len(images)):
            problems.append(f"link [{text}, {image}] leads outside {len(sentences)} sentences and {len(images)} images")
        elif sentences[text] and images[image]:
            links[Link(texts_kept[text] - 1, images_kept[image] - 1)] = None
    return tuple(links), problems


def json_lines(address: str | Path, name: str = "") -> Iterator[tuple[str, dict[str, Any] | FieldError]]:
    """Yield the object of each line that is not blank, under `<name>:<line>`, or why there is none.

    Args:
        address: of the file.
        name: what it goes by; "": its own name.

    Raises:
        BrokenInputError: the rest of the file cannot be read.
        NotFoundError: there is no such file.
    """
    name, is_begun = name or input_file(address).name, False
    for number, line in read_lines(address):
        looks_like = "" if is_begun else _other_form(line)
        if looks_like:
            raise BrokenInputError(f"{name}: {looks_like}", f"{name}:{number}")
        is_begun = True
        yield f"{name}:{number}", json_object(line)


def _other_form(line: bytes) -> str:
    """Return what a file that begins with a line looks like; empty where that may be JSON Lines."""
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16: expected UTF-8"
    return "a JSON array: expected one object a line (JSON Lines)" if _ARRAY.match(line) else ""


def json_object(line: bytes, *, is_of_web: bool = False) -> dict[str, Any] | FieldError:
    """Return the JSON object in a line, or why there is none.

    In what comes from the web, bytes that are not UTF-8 become U+FFFD: nobody can write that line again.
    """
    if len(line) > MAX_LINE_BYTES:
        return FieldError(Reason.BROKEN_RECORD, f"expected a line of at most {MAX_LINE_BYTES} bytes, found more")
    try:
        text = line.decode("utf-8-sig", errors="replace") if is_of_web else utf8(line)
        record = json.loads(text)
    except FieldError as problem:
        return problem
    except (ValueError, RecursionError) as error:
        return FieldError(Reason.BROKEN_RECORD, f"expected JSON: {error}")
    return object_or_problem(record)


def object_or_problem(record: object) -> dict[str, Any] | FieldError:
    """Return a record that must be an object, or that it is none."""
    if isinstance(record, dict):
        return record
    return FieldError(Reason.BROKEN_RECORD, f"$: expected an object, got {type(record).__name__}")


def utf8(data: bytes) -> str:
    """Return the text in bytes of a local file, without a byte order mark.

    Raises:
        FieldError: BROKEN_RECORD: it is not UTF-8.
    """
    text = data.decode("utf-8-sig", errors="surrogateescape")
    if (problem := damage_of(text)) is not None:
        raise problem
    return text


def damage_of(text: str) -> FieldError | None:
    """Return what is wrong with text that was decoded with `surrogateescape`: its first byte that is not UTF-8."""
    found = None if text.isascii() else _ESCAPED.search(text)
    if found is None:
        return None
    where = f"found byte 0x{ord(found[0]) - 0xDC00:02x} at character {found.start()}"
    return FieldError(Reason.BROKEN_RECORD, f"expected UTF-8, {where}; is it in another encoding, such as Latin-1?")
