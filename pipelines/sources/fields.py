"""Records with types: what a record of JSON or a row of a table must be, and what is wrong with one that is not.

    typed(record, Article)               an object by a `msgspec.Struct` or a dataclass
    typed(record.get("texts"), list[str | None], "$.texts")      a field by its type

    $.images[2].path: expected `str`, got `int`
    $: expected the field 'sentences', found 'sentence'; did you mean 'sentences'?

A member that is null is as good as absent. Text is `clean`. Fields that a type does not name are passed over; of those
that a person wrote, `misspelt` finds the ones that were meant for another.
"""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, TypeVar, overload

import msgspec
from msgspec import Meta

from pipelines.sources.records import FieldError, rejected, sentence
from schemas.documents import Role, Split
from schemas.failures import Failure, Reason
from schemas.metadata import Metadata, day_of, keywords_of, plain_text
from schemas.tables import clean

T = TypeVar("T")
MAX_ID = 2**63  # ids are kept in 64 bits
Number = Annotated[int, Meta(ge=0, le=MAX_ID - 1)]
Real = Annotated[float, Meta(ge=-3.4e38, le=3.4e38)]  # what float32 can hold
Name = Annotated[str, Meta(pattern=r"\S")] | int  # an id: text that is not blank, or a number
Object = dict[str, Any]
UNKNOWN = frozenset({"", "nan", "none", "null"})  # how tables spell that nothing is known
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")  # of a path: a member, or an item
_LIKE = 0.75  # of two names, above which one may be a misspelling of the other
# What other programs call a field.
_OTHER_NAMES: Mapping[str, Sequence[str]] = {
    "sentences": ("sentence", "texts", "text", "captions", "caption", "paragraphs", "body", "conversations"),
    "images": ("image", "image_paths", "pictures", "photos", "files", "file_name"),
    "text": ("sentence", "caption", "value"),
    "path": ("file", "file_name", "filename", "image", "src"),
}
_SPLITS: Mapping[str, Split] = {
    "train": Split.TRAIN,
    "val": Split.VAL,
    "valid": Split.VAL,
    "validation": Split.VAL,
    "dev": Split.VAL,
    "test": Split.TEST,
}


@overload
def typed(value: object, kind: type[T], where: str = "$", *, is_lax: bool = False) -> T: ...


@overload
def typed(value: object, kind: Any, where: str = "$", *, is_lax: bool = False) -> Any: ...


def typed(value: object, kind: Any, where: str = "$", *, is_lax: bool = False) -> Any:
    """Return a value that was parsed, as a type.

    Args:
        value: of JSON, or a cell of a table.
        kind: a struct, a dataclass, or any other type that msgspec knows.
        where: path of the value in its record.
        is_lax: whether numbers may be written as text.

    Raises:
        FieldError: MISSING_FIELD: a field is absent or null; BROKEN_RECORD: one has another type.
    """
    try:
        value = _plain(value)
        return msgspec.convert(value, kind, strict=not is_lax)
    except RecursionError as problem:
        raise FieldError(Reason.BROKEN_RECORD, f"{where}: nested too deep") from problem
    except msgspec.ValidationError as problem:
        message, _, at = str(problem).partition(" - at ")
        at = at.strip("`").removeprefix("$")
        missing = message.partition("missing required field `")[2].rstrip("`")
        if missing:
            message = f"expected the field '{missing}', found {meant(missing, _names_at(value, at))}"
        enum = {"role": Role, "split": Split}.get(at.rpartition(".")[2]) if "enum" in message else None
        message += f"; expected one of {', '.join(enum)}" if enum else ""
        is_absent = missing or (message.endswith("got `null`") and f"{where}{at}"[-1] not in "$]")
        reason = Reason.MISSING_FIELD if is_absent else Reason.BROKEN_RECORD
        raise FieldError(reason, f"{where}{at}: {message[:1].lower()}{message[1:]}") from problem


def _plain(value: object) -> Any:
    """Return a value whose texts are clean, without members that are null."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(name)): _plain(each) for name, each in value.items() if each is not None}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _names_at(value: Any, path: str) -> set[str]:
    """Return the names of the members of an object in a value, by its path."""
    for name, number in _STEP.findall(path):
        value = value[name] if name else value[int(number)]
    return {*value}


def meant(missing: str, there: Iterable[str]) -> str:
    """Return what was found in place of a field: the name that it was meant by, where one looks like that."""
    names = sorted(there)
    known = [name for name in _OTHER_NAMES.get(missing, ()) if name in names]
    found = get_close_matches(missing, names, n=1, cutoff=_LIKE) or known
    return f"'{found[0]}'; did you mean '{missing}'?" if found else "none"


def misspelt(record: object, *kinds: type, record_id: str, where: str = "$") -> Iterator[Failure]:
    """Yield a failure for each member of an object that no type names, but nearly: it was meant to be read.

    Args:
        record: what somebody wrote; of no object there is none.
        kinds: structs and dataclasses that it was read as.
        record_id: the document's.
        where: path of the object.
    """
    there = {name for name, value in record.items() if value is not None} if isinstance(record, dict) else set()
    known = set[str]().union(*map(_names_of, kinds))
    for name in sorted(there - known):
        if like := get_close_matches(name, sorted(known - there), n=1, cutoff=_LIKE):
            yield rejected(record_id, Reason.MISSPELT_FIELD, f"{where}.{name}: did you mean '{like[0]}'?")


@cache
def _names_of(kind: type) -> frozenset[str]:
    """Return the names of the fields of a struct or a dataclass."""
    return frozenset(field.name for field in (fields if is_dataclass(kind) else msgspec.structs.fields)(kind))


def text_or_none(record: Mapping[str, Any], name: str) -> str | None:
    """Return an optional text of a record: None where it is absent or null.

    Raises:
        FieldError: BROKEN_RECORD: it is no text.
    """
    return None if record.get(name) is None else typed(record[name], str, f"$.{name}")


def identifier(record: Mapping[str, Any], name: str = "id") -> str:
    """Return the id of a record, text or a whole number, as text without space around it.

    Raises:
        FieldError: MISSING_FIELD: it is absent, null or blank; BROKEN_RECORD: it is something else.
    """
    value = record.get(name)
    is_blank = isinstance(value, str) and not value.strip()
    return str(typed(None if is_blank else value, Name, f"$.{name}")).strip()


def caption_text(text: str | None, where: str) -> str:
    """Return a text whose entities are replaced and whose white space are single spaces.

    Raises:
        FieldError: MISSING_FIELD: there is none; EMPTY_SENTENCE: it is blank.
    """
    plain = sentence(html.unescape(typed(text, str, where))).text
    if not plain:
        raise FieldError(Reason.EMPTY_SENTENCE, f"{where}: expected a text, found it blank")
    return plain


def metadata(record: object, where: str = "$") -> Metadata | None:
    """Return what an object says of a picture: `title`, `caption`, `credit`, `rights`, `date`, `place`, `keywords`.

    Texts are bounded as those of files are (`schemas.metadata`).

    Raises:
        FieldError: BROKEN_RECORD: a field has another type, or the date is none.
    """
    if isinstance(record, dict) and record.keys().isdisjoint(_names_of(Metadata)):
        return None
    found = typed(record, Metadata, where)
    texts = {name: plain_text(getattr(found, name) or "") for name in Metadata.__slots__ if name != "keywords"}
    if texts["date"]:
        texts["date"] = day_of(texts["date"])
        if texts["date"] is None:
            raise FieldError(Reason.BROKEN_RECORD, f"{where}.date: expected YYYY-MM-DD, got {found.date!r:.60}")
    plain = replace(found, **texts, keywords=keywords_of(found.keywords))
    return None if plain == Metadata() else plain


def described(value: object, record_id: str, where: str = "$") -> tuple[Metadata | None, list[Failure]]:
    """Return what an object says of a picture; where it cannot be used, its failure, which costs no document."""
    try:
        return metadata(value or {}, where), []
    except FieldError as problem:
        return None, [problem.failure(record_id)]


def split_named(value: str | None, where: str = "$.split") -> Split | None:
    """Return the split that a record names, under whatever of its usual names; None where it names none.

    Raises:
        FieldError: BROKEN_RECORD: it is no name of a split.
    """
    name = (value or "").strip().lower()
    if name not in UNKNOWN | _SPLITS.keys():
        raise FieldError(Reason.BROKEN_RECORD, f"{where}: expected one of {', '.join(_SPLITS)}, got {name[:40]!r}")
    return _SPLITS.get(name)
