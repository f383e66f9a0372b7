"""A text, perhaps with a picture, as a model reads it: its vector, and how much each word counts.

    given                     read by a fuser           read by a model of one role      read by another model
    headline, lead, caption,  each as its own source    the text of its role; without    all given texts as one
    body: any of them                                   it all given texts as one

What a model reads beside words (vectors of a sentence encoder, a picture's features) comes from a `Reader`: the
pipeline's own extractors, which this module does not know. Without one only models that read words can be used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from schemas.documents import UNDETERMINED, Role
from schemas.messages import UsageError
from training.data.documents import GivenDocument, TextView
from training.data.ragged import Float32
from training.model import LinkModel
from training.text.vocabulary import token_spans
from training.towers.inputs import image_input, text_input

ORDER = (Role.HEADLINE, Role.LEAD, Role.CAPTION, Role.BODY, Role.SENTENCE)
Word = tuple[str, int]  # a role, and the number of a token of its text
SourceText = tuple[str, str]  # the role of a text (of texts that are read as one, `text`), and the text as it is read


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is searched for; at least one of its parts is there.

    Attributes:
        texts: by role; blank ones count as absent.
        language: of the texts.
        left_out: words that are not read.
        picture: path or address of a picture.
        like: content hashes of pictures in the index that results shall resemble.
        unlike: of those that they shall not resemble.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    language: str = UNDETERMINED
    left_out: frozenset[Word] = frozenset()
    picture: str | None = None
    like: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()

    @property
    def given(self) -> dict[str, str]:
        """Return the texts that are not blank, in the order of a document, without the words that are left out.

        Raises:
            UsageError: a role is not known.
        """
        if odd := sorted(set(self.texts) - set(ORDER)):
            raise UsageError(f"expected texts by role ({', '.join(ORDER)}), found {', '.join(odd)}")
        found = {
            str(role): _without(self.texts[role], {number for of, number in self.left_out if of == role})
            for role in ORDER
            if role in self.texts
        }
        return {role: text for role, text in found.items() if text}

    @property
    def is_text_alone(self) -> bool:
        """Return whether there is a text, and nothing else moves the query."""
        return bool(self.given) and self.picture is None and not self.like and not self.unlike

    @property
    def text(self) -> str:
        """Return all texts as one."""
        return " ".join(self.given.values())


@dataclass(frozen=True, slots=True)
class RawDocument:
    """Texts with their roles and at most one picture, as a model is to read them."""

    texts: tuple[SourceText, ...]
    language: str = UNDETERMINED
    picture: str | None = None


Reader = Callable[[Sequence[RawDocument]], Sequence[GivenDocument]]


def read_words(documents: Sequence[RawDocument]) -> list[GivenDocument]:
    """Return documents for a model that reads words alone: a `Reader` without extractors.

    Raises:
        UsageError: a document has a picture.
    """
    if any(document.picture is not None for document in documents):
        raise UsageError("a picture as a query needs the extractors of the model")
    return [
        GivenDocument(
            texts=[text for _, text in document.texts],
            image_vectors=np.zeros((0, 0), np.float32),
            roles=[role for role, _ in document.texts],
            language=document.language,
        )
        for document in documents
    ]


@dataclass(frozen=True)
class QueryReader:
    """How a model reads queries."""

    model: LinkModel
    reader: Reader = read_words

    @cached_property
    def languages(self) -> Sequence[str]:
        """Return the languages that the model reads; (): any."""
        return self.model.card.config.needs.languages

    @cached_property
    def _view(self) -> TextView:
        return TextView.of(self.model.card.config.reading)

    def vectors(self, queries: Sequence[Query]) -> Float32:
        """Return Q x d unit vectors of the texts of queries.

        Raises:
            UsageError: a query has no text that the model reads.
        """
        documents = self.model.read(self.reader([self._texts(query) for query in queries]))
        return self.model.encode_sentences(text_input(documents))

    def picture(self, address: str) -> Float32:
        """Return the d numbers of the unit vector of a picture.

        Raises:
            UsageError: it cannot be read.
        """
        documents = self.model.read(self.reader([RawDocument((), picture=address)]))
        if not len(documents.image_rows):
            raise UsageError(f"{address}: expected a picture, found none that can be read")
        found: Float32 = self.model.encode_images(image_input(documents))[0]
        return found

    def read(self, query: Query) -> tuple[Float32, tuple[SourceText, ...]]:
        """Return the d numbers of the unit vector of a query's texts, and the texts as the model read them for it.

        Raises:
            UsageError: the query has no text that the model reads.
        """
        return self.vectors([query])[0], self._texts(query).texts

    def _texts(self, query: Query) -> RawDocument:
        """Return what the model is given of a query's texts."""
        view, given, languages = self._view, query.given, self.languages
        if not given:
            raise UsageError("expected a text, found none")
        if languages and query.language not in languages:
            raise UsageError(
                f"the model reads texts in {', '.join(languages)}; expected one of them as language, found "
                f"{query.language}"
            )
        own = {role: text for role, text in given.items() if role in view.roles}
        if view.is_fused and not own:
            raise UsageError(
                f"the model reads {', '.join(view.roles)}: expected one of them, found {', '.join(given)} alone"
            )
        if not view.is_fused:
            role = view.roles[0] if view.roles else str(Role.SENTENCE)
            own = {role: " ".join((own or given).values())}
        return RawDocument(tuple(own.items()), query.language)

    def influence(self, query: Query, images: Float32) -> dict[str, list[float]]:
        """Return by role what each word of its text adds: how far the mean cosine with images falls without it.

        A text is read as often as it has words.

        Args:
            query: with texts.
            images: K x d unit vectors, such as those of the first results.
        """
        words = [(role, number) for role, text in query.given.items() for number in range(len(token_spans(text)))]
        without = {word: replace(query, texts=query.given, left_out=frozenset([word])) for word in words}
        readable = {word: each for word, each in without.items() if each.given}
        means = self.vectors([query, *readable.values()]) @ images.mean(axis=0)
        falls = dict.fromkeys(words, float(means[0]))
        falls |= dict(zip(readable, (means[0] - means[1:]).tolist(), strict=True))
        return {role: [fall for (own, _), fall in falls.items() if own == role] for role, _ in words}


def tokenised(text: str) -> str:
    """Return a text in one line, whose tokens are those of a model where they are in it."""
    text = " ".join(text.split())
    return text if len(text.lower()) == len(text) else text.lower()


def _without(text: str, numbers: set[int]) -> str:
    """Return a text without some of its tokens, in one line."""
    if not numbers:
        return " ".join(text.split())
    text, kept, end = tokenised(text), [], 0
    for number, (start, stop) in enumerate(token_spans(text)):
        kept.append(text[end:start] if number in numbers else text[end:stop])
        end = stop
    return " ".join("".join([*kept, text[end:]]).split())
