"""Records that somebody else wrote, and the candidate documents they become.

A source iterates over records, each with where it is in its file (`articles.jsonl:7`), and gives `outcomes_of` a
function that makes documents of one; `source.fetch_records` does the same with the answers of a host. What that
function raises is the failure row of this record alone. The functions below them are the typed fields of a record.

An image of a candidate is still an address (`uri`): a URL, the path of a local file, or `row:<n>` of a feature array.
The images stage turns addresses into content hashes; `pipelines.documents.settle` then makes a `Document` of it. Where
a record names no address that can be used, `unusable` gives one that says why: the image is then a failure of the
images stage, at its place, and costs its document nothing else.
"""

import codecs
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar, cast

from pipelines.files import MAX_LINE_BYTES, BrokenInputError, input_file, read_lines
from pipelines.web.requests import FetchFailed
from schemas.documents import UNDETERMINED, Given, Link, Provenance, Role, Sentence, Split
from schemas.failures import Failure, Reason, Stage, unexpected
from schemas.metadata import Metadata, day_of, keywords_of, plain_text
from schemas.tables import clean, travels

T = TypeVar("T")
R = TypeVar("R")
WEB = ("http://", "https://")
MAX_ADDRESS = 4096  # characters of the address of an image
MAX_ID = 2**63  # ids are kept in 64 bits
_MOST = 3.4e38  # of float32
UNKNOWN = frozenset({"", "nan", "none", "null"})  # how tables spell that nothing is known
UNUSABLE = "unusable:"  # begins the address of an image that a record names no usable one for
_ESCAPED = re.compile("[\udc80-\udcff]")  # a byte that is not UTF-8, as Python's surrogateescape has it
_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
_NOT_IN_NAMES = re.compile("[\x00-\x1f\x7f]")
_OTHER_ADDRESS = re.compile(f"{UNUSABLE}|row:|data:|javascript:|[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# Quotes and dashes (U+2018 and so on) of which published files kept the lower half alone.
_HALVES = {0x13: "\u2013", 0x14: "\u2014", 0x18: "\u2018", 0x19: "\u2019", 0x1C: "\u201c", 0x1D: "\u201d"}


@travels
@dataclass(frozen=True, slots=True)
class CandidateDocument:
    """A document whose images are addresses: what every source yields and the documents stage filters.

    Attributes:
        links: ground truth over `sentences` and `image_uris` (None: unknown), as indices from 0.
        split: where the source itself says; None leaves it to the splits stage.
        image_licences: of each image, where the source states it; empty: of none.
        after_sentence: of each image, how many of `sentences` stand before it (`schemas.documents`), None where
            unknown; empty: unknown of all.
        image_metadata: what the source says of each image; empty: nothing of any.
        image_sources: of each image that is embedded in a file, the address it came from, which is kept in place of
            the one in the file; None, or empty: `image_uris` are the addresses.
        given: what the corpus says by a model of its own, over `sentences` and `image_uris`.
        sentence_numbers: of each of `sentences`, its index in the source's list (`schemas.documents`); empty: its own.
        image_numbers: of each of `image_uris`, likewise.
    """

    id: str
    dataset: str
    sentences: tuple[Sentence, ...]
    image_uris: tuple[str, ...]
    links: tuple[Link, ...] | None
    provenance: Provenance
    language: str = UNDETERMINED
    split: Split | None = None
    image_licences: tuple[str | None, ...] = ()
    after_sentence: tuple[int | None, ...] = ()
    image_metadata: tuple[Metadata | None, ...] = ()
    image_sources: tuple[str | None, ...] = ()
    given: Given | None = None
    sentence_numbers: tuple[int, ...] = ()
    image_numbers: tuple[int, ...] = ()

    def source_of(self, image: int) -> str:
        """Return where an image came from by its position."""
        return (self.image_sources[image] if self.image_sources else None) or self.image_uris[image]

    def licence_of(self, image: int) -> str | None:
        """Return the licence of an image by its position, None where the source states none."""
        return self.image_licences[image] if self.image_licences else None

    def metadata_of(self, image: int) -> Metadata | None:
        """Return what the source says of an image by its position."""
        return self.image_metadata[image] if self.image_metadata else None


class FieldError(ValueError):
    """A field is absent or has another type than the published one."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def failure(self, record_id: str, *, stage: Stage = Stage.SOURCES) -> Failure:
        """Return the failure row of the record it was found in."""
        return Failure(stage, record_id, self.reason, str(self))


def on_web(address: str) -> bool:
    """Return whether an address is an http or https URL, by its beginning."""
    return address[:8].lower().startswith(WEB)


def unusable(problem: FieldError) -> str:
    """Return the address of an image that has none, as a field of its record says."""
    return f"{UNUSABLE}{problem.reason}:{problem}"


def with_short_addresses(outcomes: Iterable[Any]) -> Iterator[Any]:
    """Yield outcomes; an address longer than any URL, such as a picture in a `data:` address, becomes unusable."""
    for outcome in outcomes:
        if isinstance(outcome, CandidateDocument) and max(map(len, outcome.image_uris), default=0) > MAX_ADDRESS:
            outcome = replace(outcome, image_uris=tuple(map(_short, outcome.image_uris)))  # noqa: PLW2901
        if isinstance(outcome, CandidateDocument) and outcome.image_sources:
            known = (
                None if source is None or len(source) > MAX_ADDRESS else source for source in outcome.image_sources
            )
            outcome = replace(outcome, image_sources=stated(known))  # noqa: PLW2901
        yield outcome


def _short(uri: str) -> str:
    if len(uri) <= MAX_ADDRESS:
        return uri
    message = f"expected an address of at most {MAX_ADDRESS} characters, found {len(uri)}: {uri[:80]!r}"
    return unusable(FieldError(Reason.BROKEN_RECORD, message))


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
            except (FieldError, FetchFailed) as problem:
                outcomes = [problem.failure(record_id, stage=Stage.SOURCES)]
            except Exception as problem:  # noqa: BLE001 - the border of the stage
                outcomes = [unexpected(problem, stage=Stage.SOURCES, record_id=record_id)]
            yield from outcomes
    except BrokenInputError as problem:
        yield problem.failure()


def sentence(text: str, role: Role = Role.SENTENCE) -> Sentence:
    """Return a sentence in one line: white space becomes single spaces, a lost apostrophe one again."""
    plain = text if text.isprintable() else text.translate(_HALVES)
    return Sentence(" ".join(plain.split()), role)


def stated(values: Iterable[T | None]) -> tuple[T | None, ...]:
    """Return the licences or the metadata of a candidate's images, as `CandidateDocument` has them."""
    known = tuple(values)
    return known if any(known) else ()


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

    In what comes from the web, bytes that are not UTF-8 become U+FFFD: nobody can write that line anew.
    """
    if len(line) > MAX_LINE_BYTES:
        return FieldError(Reason.BROKEN_RECORD, f"expected a line of at most {MAX_LINE_BYTES} bytes, found more")
    try:
        text = line.decode("utf-8-sig", errors="replace") if is_of_web else utf8(line)
        return checked(json.loads(text), dict, "a record")
    except FieldError as problem:
        return problem
    except (ValueError, RecursionError) as error:
        return FieldError(Reason.BROKEN_RECORD, f"expected JSON: {error}")


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


def required(record: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return a field that must be there.

    Raises:
        FieldError: MISSING_FIELD: it is absent or null; BROKEN_RECORD: it has another type.
    """
    value = record.get(name)
    if value is None:
        raise FieldError(Reason.MISSING_FIELD, f"expected the field '{name}', found none")
    return checked(value, kind, name)


def optional(record: Mapping[str, Any], name: str, default: T) -> T:
    """Return a field of the default's type, or the default where it is absent or null.

    Raises:
        FieldError: BROKEN_RECORD: it has another type.
    """
    value = record.get(name)
    return default if value is None else checked(value, type(default), name)


def text_or_none(record: Mapping[str, Any], name: str) -> str | None:
    """Return an optional text of a record: None where it is absent or null.

    Raises:
        FieldError: BROKEN_RECORD: it is no text.
    """
    return None if record.get(name) is None else optional(record, name, "")


def metadata(record: Mapping[str, Any]) -> Metadata | None:
    """Return what a record says of a picture: `title`, `caption`, `credit`, `rights`, `date`, `place`, `keywords`.

    Texts are bounded as those of files are (`schemas.metadata`).

    Raises:
        FieldError: BROKEN_RECORD: a field has another type, or the date is none.
    """
    names = ("title", "caption", "credit", "rights", "date", "place")
    if all(record.get(name) is None for name in (*names, "keywords")):
        return None
    found = {name: plain_text(text_or_none(record, name) or "") for name in names}
    if found["date"]:
        written, found["date"] = found["date"], day_of(found["date"])
        if found["date"] is None:
            raise FieldError(Reason.BROKEN_RECORD, f"date: expected YYYY-MM-DD, found {written[:40]!r}")
    words = [checked(word, str, "a keyword") for word in optional(record, "keywords", list[object]())]
    given = Metadata(**found, keywords=keywords_of(words))
    return None if given == Metadata() else given


def described(value: object, record_id: str) -> tuple[Metadata | None, list[Failure]]:
    """Return what an object says of a picture; where it cannot be used, its failure, which costs no document."""
    try:
        return metadata(checked(value or {}, dict, "picture")), []
    except FieldError as problem:
        return None, [problem.failure(record_id)]


def identifier(record: Mapping[str, Any], name: str = "id") -> str:
    """Return an id that is text or a whole number, as text without space around it.

    Raises:
        FieldError: MISSING_FIELD: it is absent, null or blank; BROKEN_RECORD: it is something else.
    """
    value = record.get(name)
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else required(record, name, str).strip()
    if not text:
        raise FieldError(Reason.MISSING_FIELD, f"expected the field '{name}', found it empty")
    return text


def number(record: Mapping[str, Any], name: str) -> int:
    """Return a field that is a whole number from 0, perhaps written as text.

    Raises:
        FieldError: MISSING_FIELD: it is absent or null; BROKEN_RECORD: it is no such number.
    """
    value = record.get(name)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    value = required({name: value}, name, int)
    if not 0 <= value < MAX_ID:
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected a number from 0, found one out of range")
    return value


def real(value: object, name: str) -> float:
    """Return a number that float32 can hold.

    Raises:
        FieldError: BROKEN_RECORD: it is none, infinite, or beyond that.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MOST:
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected a number, found {value!r:.40}")
    return float(value)


def caption_text(record: Mapping[str, Any], *names: str) -> str:
    """Return the first of the fields that is there, entities replaced, white space made single spaces.

    Raises:
        FieldError: MISSING_FIELD: none is there; BROKEN_RECORD: it is no text; EMPTY_SENTENCE: it is blank.
    """
    name = next((name for name in names if record.get(name) is not None), names[0])
    text = sentence(clean(html.unescape(required(record, name, str)))).text
    if not text:
        raise FieldError(Reason.EMPTY_SENTENCE, f"{name}: expected a text, found it blank")
    return text


def file_name(value: object, name: str) -> str:
    """Return the name of a file below the images of a source; that it stays there is for `read_named` to see to.

    Raises:
        FieldError: MISSING_FIELD: it is absent or blank; BROKEN_RECORD: it is no text, or an address of another kind.
    """
    text = "" if value is None else checked(value, str, name).strip()
    if not text:
        raise FieldError(Reason.MISSING_FIELD, f"{name}: expected the name of a file, found none")
    if _NOT_IN_NAMES.search(text) or on_web(text) or _OTHER_ADDRESS.match(text):
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected the name of a file, found {text[:80]!r}")
    return text


def web_url(value: object, name: str) -> str:
    """Return an http or https URL.

    Raises:
        FieldError: BROKEN_RECORD: it is none.
    """
    url = checked(value, str, name)
    if not on_web(url):
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected an http or https URL, found {url[:80]!r}")
    return url


def checked(value: object, kind: type[T], name: str) -> T:
    """Return a value that must be of one type (true and false are no numbers).

    Text comes back `clean`.

    Raises:
        FieldError: BROKEN_RECORD.
    """
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        expected, found = (_NAMES.get(found, found.__name__) for found in (kind, type(value)))
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected {expected}, found {found}")
    return cast(T, clean(value)) if isinstance(value, str) else value


def split_named(value: object, name: str) -> Split | None:
    """Return the split that a record names, under whatever of its usual names; None where it names none.

    Raises:
        FieldError: BROKEN_RECORD: it is no name of a split.
    """
    text = "" if value is None else checked(value, str, name).strip().lower()
    if text in UNKNOWN:
        return None
    if text not in _SPLITS:
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected one of {', '.join(_SPLITS)}, found {text[:40]!r}")
    return _SPLITS[text]


_SPLITS: Mapping[str, Split] = {
    "train": Split.TRAIN,
    "val": Split.VAL,
    "valid": Split.VAL,
    "validation": Split.VAL,
    "dev": Split.VAL,
    "test": Split.TEST,
}
_NAMES: Mapping[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a fraction",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
