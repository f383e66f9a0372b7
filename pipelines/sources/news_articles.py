"""A news article of whatever source: up to four texts by role and one picture, and the draft it makes.

The links are known, and every text of an article goes with its picture: N ranks pictures for each of the four roles
alone and for all together. A body stays one text, as N encodes it. Reading the formats is in `news.py`,
`goodnews.py` and `visualnews.py`.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.sources.candidate import CandidateDocument, stated
from pipelines.sources.fields import optional
from schemas.documents import Link, Provenance, Role, Sentence, Split
from schemas.failures import Failure, Reason, Stage

DATASET = "news"
ROLES = (Role.HEADLINE, Role.LEAD, Role.CAPTION, Role.BODY)  # their order in a document
_DIGEST_BYTES = 16
_OF_A_PART = frozenset({Reason.EMPTY_SENTENCE, Reason.NOT_FOUND})


@dataclass(frozen=True, slots=True)
class NewsArticle:
    """An article as its source has it.

    Attributes:
        texts: by role, as published; None: the source has none.
        image: path under the images' folder, or a URL.
        source: name of the data set it came from.
        url: address a person can open.
        licence: of its texts and its image, where the source states one.
        split: where the source itself says.
    """

    id: str
    texts: Mapping[Role, str | None]
    image: str
    source: str
    language: str
    url: str | None = None
    licence: str | None = None
    split: Split | None = None


def article_to_draft(article: NewsArticle) -> Iterator[CandidateDocument | Failure]:
    """Yield the draft of an article, then EMPTY_SENTENCE for each text that is there and blank.

    HTML's entities become characters and white space is collapsed. Without any text, or without an image, there is a
    failure instead of the draft.
    """
    texts = {role: tidy_text(text) for role in ROLES if (text := article.texts.get(role)) is not None}
    sentences = tuple(Sentence(text, role) for role, text in texts.items() if text)
    if not article.image.strip():
        yield Failure(Stage.SOURCES, article.id, Reason.MISSING_FIELD, "expected the path of an image, found it empty")
    elif not sentences:
        expected = ", ".join(ROLES)
        yield Failure(Stage.SOURCES, article.id, Reason.EMPTY_DOCUMENT, f"expected one of {expected}, found none")
    else:
        yield CandidateDocument(
            id=article.id,
            dataset=DATASET,
            sentences=sentences,
            image_uris=(article.image.strip(),),
            links=tuple(Link(index, 0) for index in range(len(sentences))),
            provenance=Provenance(article.source, article.id, article.url, article.licence),
            language=article.language,
            split=article.split,
            image_licences=stated([article.licence]),
        )
    for role, text in texts.items():
        if not text:
            yield Failure(Stage.SOURCES, article.id, Reason.EMPTY_SENTENCE, f"the {role} is blank")


def tidy_text(text: str) -> str:
    """Return a text in one line, HTML's entities decoded (once: `&amp;lt;` is the text `&lt;`)."""
    return " ".join(html.unescape(text).split())


def text_of(record: Mapping[str, Any], name: str) -> str | None:
    """Return an optional text of a record: None where it is absent or null.

    Raises:
        FieldError: BROKEN_RECORD: it is no text.
    """
    return None if record.get(name) is None else optional(record, name, "")


def without_repeats(outcomes: Iterable[CandidateDocument | Failure]) -> Iterator[CandidateDocument | Failure]:
    """Yield outcomes, with DUPLICATE_RECORD for each draft whose id has come before, and nothing of its parts.

    Remembers 16 bytes (about 100 with Python's own) an id.
    """
    seen: set[bytes] = set()
    repeated: str | None = None
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            is_part = repeated is not None and outcome.record_id in (repeated, f"{repeated}#{Role.BODY}")
            if not (is_part and outcome.reason in _OF_A_PART):
                yield outcome
            continue
        digest = hashlib.blake2b(outcome.id.encode(), digest_size=_DIGEST_BYTES).digest()
        repeated = outcome.id if digest in seen else None
        seen.add(digest)
        message = "expected one article of this id, found another"
        yield Failure(Stage.SOURCES, outcome.id, Reason.DUPLICATE_RECORD, message) if repeated else outcome
