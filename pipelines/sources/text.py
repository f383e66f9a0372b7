"""Running text: its sentences, how much work its markup may make for a parser, and the addresses in that.

Sentences end at the full stops of their script, in any language; Thai and Lao, which have none, at spaces. Between
these they are spaCy's, a paragraph at a time, by the rules of the text's language: a full stop of Latin, Greek or
Cyrillic script may also end an abbreviation. H does not say which of spaCy's two English splitters it used. It is
the rule-based one here (`sentencizer` on `spacy.blank("en")`): it needs no model, only the library, and gives the same
sentences on every machine.

The parsers of markup used here (`html.parser`, mwparserfromhell) read to the end of a text for what would close an
opening, and come back where nothing does: their time grows with the openings that never close times the length of the
text. So these are counted first.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.abc import MetaPathFinder
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urljoin

from pipelines.sources.records import FieldError
from schemas.documents import UNDETERMINED
from schemas.failures import Reason
from schemas.tables import clean

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from spacy.language import Language

T = TypeVar("T")
_ANY_LANGUAGE = "xx"
_MAX_PARAGRAPH_CHARACTERS = 10_000_000  # spaCy's own limit of a million is about the memory of a parser
_LONG_WORD = re.compile(r"(\S{500})(?=\S)")  # a word takes the tokenizer the square of its length
_COMMENT = re.compile("(<!--)|-->")
# Full stops beyond ASCII (those of spaCy's `sentencizer` without Burmese commas, those of Khmer and Tibetan) with the
# quotation marks and brackets behind them. A Japanese "to" goes on
# with the sentence that quotes. A Greek semicolon asks.
_STOPS = "։؟۔܀܁܂߹।॥။።፧፨᙮᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᰻᰼᱾᱿‼‽⁇⁈⁉⸮⸼꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫﹒﹖﹗！．？｡。។៕༎།"
_CLOSERS = "」』”’）】》〉»\"')\\]"
_END = re.compile(
    f"(?:[{_STOPS}]+[{_CLOSERS}]*(?![{_STOPS}{_CLOSERS}0-9０-９、，]|と|って)"
    r"|(?<=[\u0370-\u03ff\u1f00-\u1fff])[;;](?=\s+[\u0386-\u03ab])"
    r"|(?<=[\u0e01-\u0e4f\u0e80-\u0edf])(?=\s+[\u0e01-\u0e45\u0e80-\u0ec5]))\s*"
)
# What spaCy leaves at the end of a sentence: marks behind white space. They open the next one if they stand close to
# it, or are of these, which never close anything.
_MARKS = re.compile(r"(?<=\s)[^\w\s.!?…]+$")
_OPENINGS = frozenset("«“„‚([{¿¡*•–—-")
_DETECTED_CHARACTERS = 5_000  # of a text, by which its language is told
LEAST_CONFIDENCE = 0.2  # below, a language is undetermined
NO_LANGUAGE = "zxx"  # numbers, identifiers
_LOG = logging.getLogger(__name__)
_CUT_TAG = re.compile(r"<[A-Za-z][^<>]*+(?!>)")  # another tag begins before its end


def count_unclosed(tokens: Iterable[tuple[str, bool]]) -> int:
    """Return how many openings have no closing of their kind after them.

    Args:
        tokens: kind, and whether it opens, in the order of the text.
    """
    unclosed: Counter[str] = Counter()
    for kind, is_opening in tokens:
        unclosed[kind] = max(0, unclosed[kind] + (1 if is_opening else -1))
    return unclosed.total()


def check_work(text: str, *, limit: float, unclosed: int = 0) -> None:
    """Raise where a text has so many openings without an end that parsing it would take long.

    Args:
        text: markup.
        limit: openings that never close, times characters.
        unclosed: openings that never close, tags without `>` and comments apart.

    Raises:
        FieldError: BROKEN_RECORD.
    """
    comments = count_unclosed(("", bool(match[1])) for match in _COMMENT.finditer(text))
    count = unclosed + comments + len(_CUT_TAG.findall(text))
    if count * len(text) > limit:
        raise FieldError(Reason.BROKEN_RECORD, f"expected markup, found {count} openings that never close")


def absolute_url(base_url: str, address: str) -> str:
    """Return an address completed by that of its page; as it stands where it is malformed, for others to refuse.

    A backslash is a slash, as to browsers (URL standard 4.4).
    """
    try:
        return urljoin(base_url, address.replace("\\", "/"))
    except ValueError:
        return address


@dataclass(frozen=True, slots=True)
class Paragraphs(Generic[T]):
    """The paragraphs of a text, and what stands between them.

    Attributes:
        texts: of each paragraph, in one line.
        between: what is no text, each with how many paragraphs stand wholly before it.
    """

    texts: tuple[str, ...]
    between: tuple[tuple[T, int], ...] = ()


def paragraphs_of(pieces: Iterable[str | T], plain: Callable[[str], str] = clean) -> Paragraphs[T]:
    """Return the lines of a text that are not blank as its paragraphs.

    Args:
        pieces: of the text, in order, and what stands between them.
        plain: what becomes of a line before its white space becomes single spaces.
    """
    texts: list[str] = []
    between: list[tuple[T, int]] = []
    line: list[str] = []

    def end_line() -> None:
        text = " ".join(plain("".join(line)).split())
        line.clear()
        if text:
            texts.append(text)

    for piece in pieces:
        if isinstance(piece, str):
            head, *others = piece.split("\n")
            line.append(head)
            for other in others:
                end_line()
                line.append(other)
        else:
            between.append((piece, len(texts)))
    end_line()
    return Paragraphs(tuple(texts), tuple(between))


@dataclass(frozen=True, slots=True)
class SplitText:
    """The sentences of a text, each in one line, and the number of the paragraph that each is of."""

    sentences: tuple[str, ...]
    paragraphs: tuple[int, ...]

    def before(self, paragraph: int) -> int:
        """Return how many of the sentences stand before a paragraph."""
        return bisect_left(self.paragraphs, paragraph)


def split_sentences(paragraphs: Iterable[str], *, limit: int | None = None, language: str = "en") -> SplitText:
    """Return the first `limit` sentences of a text.

    A sentence never spans two paragraphs; what has no letter or digit (a lone quotation mark) is none. No more of the
    text is read than it takes.

    Args:
        paragraphs: of the text, in order.
        limit: None keeps all.
        language: whose abbreviations count; of an undetermined one that of the text, as far as it can be told.
    """
    if language == UNDETERMINED:
        paragraphs = iter(paragraphs)
        beginning = list(_first(paragraphs, _DETECTED_CHARACTERS))
        language, paragraphs = found_language(" ".join(beginning)), chain(beginning, paragraphs)
    found = list(islice(_sentences(paragraphs, _splitter(language.partition("-")[0])), limit))
    return SplitText(tuple(text for _, text in found), tuple(number for number, _ in found))


def _first(paragraphs: Iterator[str], characters: int) -> Iterator[str]:
    """Yield paragraphs until they have so many characters."""
    for paragraph in paragraphs:
        yield paragraph
        characters -= len(paragraph)
        if characters <= 0:
            return


def _sentences(paragraphs: Iterable[str], splitter: Language) -> Iterator[tuple[int, str]]:
    for number, paragraph in enumerate(paragraphs):
        text = _LONG_WORD.sub(r"\1 ", " ".join(paragraph.split()))
        for part in _END.sub(r"\g<0>\n", text).split("\n"):
            for sentence in _cut(part.strip(), splitter) if part.strip() else ():
                if any(character.isalnum() for character in sentence):
                    yield number, sentence.strip()


def _cut(text: str, splitter: Language) -> Iterator[str]:
    """Yield the sentences of a text as a splitter cuts it; by rules, what opens a sentence goes with that.

    He left. "Go," she said.      He left. | "Go," she said.
    ¿Qué hora es? ¡Es tarde!      ¿Qué hora es? | ¡Es tarde!
    """
    begin = 0
    for end in (sentence.end_char for sentence in splitter(text).sents):
        marks = _MARKS.search(text, begin, end) if end < len(text) else None
        is_opening = marks is not None and (not text[end].isspace() or _OPENINGS.issuperset(marks[0]))
        stop = marks.start() if marks is not None and is_opening else end
        yield text[begin:stop]
        begin = stop


class _WithoutTorch(MetaPathFinder):
    """Hides PyTorch from what this thread imports, while the `with` block runs.

    spaCy's library of networks imports it where it is installed: half a gigabyte and seconds, which rules do not need.
    """

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "torch" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("torch is hidden", name=name)
        return None


@lru_cache(maxsize=64)
def _splitter(language: str) -> Language:
    with _WithoutTorch():
        import spacy

    try:
        splitter = spacy.blank(language)
    except ImportError:
        if language not in (_ANY_LANGUAGE, UNDETERMINED):
            _LOG.warning("spaCy's rules for %r are not installed: sentences end at full stops alone", language)
        return _splitter(_ANY_LANGUAGE)
    splitter.add_pipe("sentencizer")
    splitter.max_length = _MAX_PARAGRAPH_CHARACTERS
    return splitter


def found_language(text: str, known: Sequence[str] = ()) -> str:
    """Return the language of a text, `und` where that is not clear.

    Args:
        text: of any length.
        known: languages that it can be in; empty: any of 139.
    """
    language, _ = _identifier(tuple(sorted(known))).classify(text)
    return UNDETERMINED if language == NO_LANGUAGE else str(language)


@cache
def _identifier(known: tuple[str, ...]) -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    made = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True, min_confidence=LEAST_CONFIDENCE)
    if known:
        made.set_languages(list(known))
    return made
