"""DECISION: a person's judgement of a picture, and RANKING: the pictures that were shown for an article.

    shortlist, choose, reject, withdraw    a picture for an article, with the ranking in which it was shown
    fits, none-fits, cannot-say            which sentence goes with an image drawn at random (`multilink label`)

Decisions are only ever added. What counts of several about one picture of one article is the last (`standing`);
`withdraw` takes the others back. An article is known by its texts alone, so that another query with the
same texts is about the same article.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from schemas.documents import UNDETERMINED
from schemas.messages import UsageError
from schemas.versions import fingerprint, plain

MAX_NOTE, MAX_WHO = 2_000, 200  # characters
_HASH = re.compile("[0-9a-f]{64}")


class Action(StrEnum):
    SHORTLIST = "shortlist"
    CHOOSE = "choose"
    REJECT = "reject"
    WITHDRAW = "withdraw"
    FITS = "fits"
    NONE_FITS = "none-fits"
    CANNOT_SAY = "cannot-say"

    @property
    def is_label(self) -> bool:
        """Return whether it is the answer to a question about an image that was drawn at random."""
        return self in (Action.FITS, Action.NONE_FITS, Action.CANNOT_SAY)


class Objection(StrEnum):
    """Why a picture was rejected."""

    SUBJECT = "wrong-subject"
    PERSON = "wrong-person"
    PLACE = "wrong-place"
    TIME = "wrong-time"
    QUALITY = "quality"
    RIGHTS = "rights"
    SENSITIVE = "sensitive"
    USED = "already-used"
    OTHER = "other"

    @property
    def is_mismatch(self) -> bool:
        """Return whether it says that text and picture do not go together; the others say nothing of that."""
        return self in (Objection.SUBJECT, Objection.PERSON, Objection.PLACE, Objection.TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPicture:
    """A picture of a ranking.

    Attributes:
        image: content hash.
        score: it was ranked by.
        similarity: cosine with the article.
        probability: calibrated; None: there was none, or it was not shown.
        model: URI of the model that gave the picture, in a ranking of two models; empty: the ranking has one.
        title: under which it was shown.
    """

    image: str
    score: float
    similarity: float | None = None
    probability: float | None = None
    model: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """What was shown for an article.

    Attributes:
        texts: of the article, by role.
        language: of the texts.
        models: URIs of the model, or of the champion and the challenger whose rankings were interleaved.
        dataset: NAME@VERSION of the pictures.
        indexes: of each model, the index that was searched.
        query: what else was asked (filters, words left out), as the address of the page has it.
        pictures: the best first.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    language: str = UNDETERMINED
    models: tuple[str, ...]
    dataset: str
    indexes: tuple[str, ...] = ()
    query: str = ""
    pictures: tuple[ShownPicture, ...]

    @property
    def article(self) -> str:
        """Return the digest of the article."""
        return article_digest(self.texts)

    @property
    def digest(self) -> str:
        return fingerprint(plain(self))

    @property
    def is_blind(self) -> bool:
        """Return whether it is of two models, which of them gave a picture being unknown to who saw it."""
        return len(self.models) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A person's judgement of a picture.

    Attributes:
        action: the judgement.
        image: content hash of the picture.
        dataset: NAME@VERSION that it is of.
        model: URI of the model that ranked it or linked its document; empty in a blind comparison.
        document: of a label: id of its document.
        sentence: of a label: number of the sentence that fits (`schemas.documents`).
        reason: of a rejection.
        note: of who decided.
        who: name that the reverse proxy gave; empty: unknown.
        ranking: digest of the ranking; empty for labels.
        article: digest of the article; of a label: digest of the sample.
        title: under which the picture was shown in the ranking; empty for labels.
        number: in the log, from 1; given by it.
        at: ISO 8601 in UTC; given by the log.
    """

    action: Action
    image: str
    dataset: str
    model: str = ""
    document: str = ""
    sentence: int | None = None
    reason: Objection | None = None
    note: str = ""
    who: str = ""
    ranking: str = ""
    article: str = ""
    title: str = ""
    number: int = 0
    at: str = ""

    def __post_init__(self) -> None:
        if not _HASH.fullmatch(self.image):
            raise UsageError(f"image: expected a content hash of 64 hexadecimal digits, found {self.image[:70]!r}")
        if (self.action is Action.REJECT) != (self.reason is not None):
            raise UsageError(f"{self.action}: expected a reason with reject, and with no other action")
        has_sentence = self.sentence is not None and self.sentence >= 0
        if (self.action is Action.FITS) != has_sentence:
            raise UsageError(f"{self.action}: expected the number of a sentence with fits, and with no other action")
        if self.action.is_label and not (self.document and self.article and self.model):
            raise UsageError(f"{self.action}: expected the document, the sample and the model of an image")
        if len(self.note) > MAX_NOTE or len(self.who) > MAX_WHO:
            raise UsageError(f"expected a note of at most {MAX_NOTE} characters, a name of at most {MAX_WHO}")

    @property
    def is_blind(self) -> bool:
        """Return whether it was made in a blind comparison."""
        return not self.model

    @property
    def subject(self) -> tuple[str, ...]:
        """Return what it is about: later decisions with the same subject take its place."""
        if self.action.is_label:
            return self.article, self.document, self.image, self.who
        return self.article, self.image


def article_digest(texts: Mapping[str, str]) -> str:
    """Return what an article is known by; blank texts and white space make no difference. Without a text it is ""."""
    given = {role: " ".join(text.split()) for role, text in texts.items() if text.strip()}
    return fingerprint(given) if given else ""


def standing(decisions: Iterable[Decision]) -> list[Decision]:
    """Return the last decision on each subject, in order; what was withdrawn is not among them."""
    last: dict[tuple[str, ...], Decision] = {}
    for decision in decisions:
        last.pop(decision.subject, None)
        if decision.action is not Action.WITHDRAW:
            last[decision.subject] = decision
    return list(last.values())
