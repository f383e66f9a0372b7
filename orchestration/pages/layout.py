"""An article with its pictures beside its paragraphs, as an address has it or as the model proposes.

    place=HASH    where the model says      place=HASH:3    beside the fourth paragraph      place=HASH:-    beside none

Without any: the pictures that were chosen for the article, and where none was, those on its shortlist.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from starlette.datastructures import QueryParams

from orchestration.pages.archives import Choice
from orchestration.pages.asking import SearchParameters, language_of
from orchestration.pages.shown import said_of
from orchestration.pages.state import Pages
from orchestration.pages.store import Article
from pipelines.sources.text import SplitText, split_sentences
from schemas.decisions import Action
from schemas.errors import NotFoundError, UsageError
from training.retrieval.placement import MAX_PLACED, place
from training.retrieval.records import Picture

_PLACE = re.compile(r"([0-9a-f]{64})(?::(\d{1,6}|-))?")
_NOWHERE = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPicture:
    """A picture and where it stands.

    Attributes:
        picture: what is known of it.
        paragraph: beside it, from 0; None: beside none.
        sentence: that the model links it with; "": none, or an editor placed it.
        is_proposed: whether the model placed it.
    """

    picture: Picture
    paragraph: int | None
    sentence: str = ""
    is_proposed: bool = False

    @property
    def place(self) -> str:
        """Return the value of the parameter that puts it there."""
        return f"{self.picture.image}:{_NOWHERE if self.paragraph is None else self.paragraph}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """An article with its pictures.

    Attributes:
        choice: the index that the pictures are of.
        language: of the article.
        paragraphs: of its body.
        pictures: in the order of the address.
    """

    choice: Choice
    language: str
    paragraphs: tuple[str, ...]
    pictures: tuple[PlacedPicture, ...]

    def beside(self, paragraph: int | None) -> list[PlacedPicture]:
        """Return the pictures beside a paragraph, or beside none."""
        return [each for each in self.pictures if each.paragraph == paragraph]

    def moved(self, image: str, paragraph: int | None) -> list[str]:
        """Return the places of all pictures with one moved, behind those that are there already."""
        own = next(each for each in self.pictures if each.picture.image == image)
        others = [each.place for each in self.pictures if each is not own]
        return [*others, replace(own, paragraph=paragraph).place]

    def without(self, image: str) -> list[str]:
        """Return the places of all pictures but one."""
        return [each.place for each in self.pictures if each.picture.image != image]


def layout_of(shared: Pages, article: Article, given: QueryParams) -> Layout:
    """Return the article with its pictures where the address has them, or where the model puts them.

    Raises:
        UsageError: a place cannot be read, or the article has no body.
        NotFoundError: a picture is not in the index.
    """
    choice = shared.archives.choice(given.get("index", ""))
    archive = shared.archives.opened(choice)
    language = language_of(SearchParameters(), article, archive)
    paragraphs = tuple(line for line in map(str.strip, article.texts.get("body", "").splitlines()) if line)
    wanted = _wanted(given.getlist("place"), len(paragraphs)) or dict.fromkeys(_decided(shared, article))
    records = archive.index.records
    rows = records.rows_of(list(wanted))
    for image, row in zip(wanted, rows, strict=True):
        if row is None:
            raise NotFoundError(f"picture {image[:16]}: not in this index")
    pictures = dict(zip(wanted, records.pictures([row for row in rows if row is not None]), strict=True))
    split = split_sentences(paragraphs, language=language)
    free = [image for image, where in wanted.items() if where is None]
    placed = place(archive.index, split.sentences, free, language=language, reader=archive.reader)
    proposed = {each.image: _proposed(pictures[each.image], each.sentence, split) for each in placed}
    fixed = {
        image: PlacedPicture(picture=pictures[image], paragraph=None if where == _NOWHERE else int(where))
        for image, where in wanted.items()
        if where is not None
    }
    found = proposed | fixed
    return Layout(
        choice=choice, language=language, paragraphs=paragraphs, pictures=tuple(found[image] for image in wanted)
    )  # fmt: skip


def _proposed(picture: Picture, sentence: int | None, split: SplitText) -> PlacedPicture:
    if sentence is None:
        return PlacedPicture(picture=picture, paragraph=None, is_proposed=True)
    return PlacedPicture(
        picture=picture,
        paragraph=split.paragraphs[sentence],
        sentence=split.sentences[sentence],
        is_proposed=True,
    )


def _wanted(places: Sequence[str], paragraphs: int) -> dict[str, str | None]:
    """Return where each picture is wanted: the number of a paragraph, "-", or None where the model is to say."""
    if len(places) > MAX_PLACED:
        raise UsageError(f"expected at most {MAX_PLACED} pictures, found {len(places)}")
    wanted: dict[str, str | None] = {}
    for value in places:
        found = _PLACE.fullmatch(value)
        if found is None or ((found[2] or _NOWHERE) != _NOWHERE and int(found[2]) >= paragraphs):
            raise UsageError(
                f"place={value[:80]!r}: expected HASH, HASH:PARAGRAPH or HASH:-, of {paragraphs} paragraphs"
            )
        wanted[found[1]] = found[2]
    return wanted


def _decided(shared: Pages, article: Article) -> Iterator[str]:
    """Yield the pictures that were chosen for an article; where none was, those on its shortlist."""
    said = said_of(shared, article.texts).values()
    chosen = [each.image for each in said if each.action is Action.CHOOSE]
    yield from chosen or [each.image for each in said if each.action is Action.SHORTLIST]
