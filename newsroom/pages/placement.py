"""Which picture stands beside which paragraph of an article: proposed by a model, changed by an editor.

GET /placement/KEY          the article with its pictures

    place=HASH    where the model says      place=HASH:3    beside the fourth paragraph      place=HASH:-    beside none

Without any: the pictures that were chosen for the article, and where none was, those on its shortlist. In place of a
content hash stands the key of a picture that was uploaded. Pictures of several archives are placed by a model of each.
Every move is an address, so nothing is written and a script only spares a click.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from newsroom.archive.records import Picture
from newsroom.decisions.rankings import title_of
from newsroom.decisions.records import Action, article_digest
from newsroom.labels.linked import picture_address
from newsroom.pages.archives import Choice
from newsroom.pages.decisions import Standing, standing_of
from newsroom.pages.rendering import address, page
from newsroom.pages.search_jobs import Proposal, propose_places
from newsroom.pages.state import Pages, Shared
from newsroom.pages.store import KEY_DIGITS, Article
from newsroom.search.placement import MAX_PLACED
from schemas.errors import NotFoundError, UsageError
from schemas.metadata import Metadata

_PLACE = re.compile(rf"([0-9a-f]{{64}}|[0-9a-f]{{{KEY_DIGITS}}})(?::(\d{{1,6}}|-))?")
_NOWHERE = "-"
router = APIRouter()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPicture:
    """A picture and where it stands.

    Attributes:
        picture: what is known of it.
        dataset: NAME@VERSION that it is of; "": an upload, whose key `picture.image` is.
        paragraph: beside it, from 0; None: beside none.
        sentence: that a model links it with; "": none, or an editor placed it.
        is_proposed: whether a model placed it.
    """

    picture: Picture
    dataset: str
    paragraph: int | None
    sentence: str = ""
    is_proposed: bool = False

    @property
    def place(self) -> str:
        """Return the value of the parameter that puts it there."""
        return f"{self.picture.image}:{_NOWHERE if self.paragraph is None else self.paragraph}"

    @property
    def title(self) -> str:
        """Return what it is called; "": nothing is known."""
        return title_of(self.picture)

    @property
    def copy(self) -> str:
        """Return the address of its copy, below the root."""
        image = self.picture.image
        return picture_address(self.dataset, self.picture.part, image) if self.dataset else f"/uploads/{image}.jpg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """An article with its pictures.

    Attributes:
        choice: the index that is searched.
        language: of the article.
        paragraphs: of its body.
        pictures: in the order of the address.
    """

    choice: Choice
    language: str
    paragraphs: tuple[str, ...]
    pictures: tuple[PlacedPicture, ...]

    @property
    def places(self) -> list[str]:
        """Return the places of all pictures."""
        return [each.place for each in self.pictures]

    def beside(self, paragraph: int | None) -> list[PlacedPicture]:
        """Return the pictures beside a paragraph, or beside none."""
        return [each for each in self.pictures if each.paragraph == paragraph]

    def moved(self, image: str, paragraph: int | None) -> list[str]:
        """Return the places of all pictures with one moved, behind those that are there already."""
        own = next(each for each in self.pictures if each.picture.image == image)
        return [*self.without(image), replace(own, paragraph=paragraph).place]

    def without(self, image: str) -> list[str]:
        """Return the places of all pictures but one."""
        return [each.place for each in self.pictures if each.picture.image != image]


@router.get("/placement/{key}")
async def placement(request: Request, shared: Shared, key: str) -> Response:
    """Show the article with its pictures."""
    article = await run_in_threadpool(shared.store.article, key)
    layout = await layout_of(request, shared, article)
    then = address(request, f"/placement/{key}", place=layout.places, index=layout.choice.key)
    return page(request, "placement.html.j2", key=key, article=article, layout=layout, then=then)


async def layout_of(request: Request, shared: Pages, article: Article) -> Layout:
    """Return the article with its pictures where the address has them, or where models put them.

    Raises:
        UsageError: a place cannot be read.
        NotFoundError: a picture is in no index, and nobody decided on it.
    """
    choice = shared.archives.choice(request.query_params.get("index", ""))
    paragraphs = tuple(line for line in map(str.strip, article.texts.get("body", "").splitlines()) if line)
    standing = await run_in_threadpool(standing_of, shared, article_digest(article.texts))
    wanted = _wanted(request.query_params.getlist("place"), len(paragraphs)) or dict.fromkeys(_decided(standing))
    uploads = await run_in_threadpool(_uploads, shared, wanted)
    language, placed = article.language, dict[str, PlacedPicture]()
    for dataset, images in _by_dataset(wanted, choice.manifest.dataset, standing).items():
        index = next((each for each in (choice, *shared.archives.choices) if each.manifest.dataset == dataset), None)
        own = uploads if index is choice else {}
        found = Proposal(language=language, pictures={}, places={})
        if index is not None:
            free = {image: own.get(image) for image in (*images, *own) if wanted[image] is None}
            found = await shared.searches.run(request, propose_places, [index], article, paragraphs, images, free)
        language = found.language if index is choice else language
        for image in (*images, *own):
            picture = found.pictures.get(image) or _without_index(image, dataset, standing, own)
            placed[image] = _placed(picture, "" if image in own else dataset, wanted[image], found)
    pictures = tuple(placed[image] for image in wanted)
    return Layout(choice=choice, language=language, paragraphs=paragraphs, pictures=pictures)


def _uploads(shared: Pages, wanted: Iterable[str]) -> dict[str, bytes]:
    """Return the pictures of somebody's own, by key."""
    return {key: shared.store.upload(key) for key in wanted if len(key) == KEY_DIGITS}


def _by_dataset(wanted: Iterable[str], searched: str, standing: Standing) -> Mapping[str, list[str]]:
    """Return the pictures of each data set version, first those of the one that is searched."""
    found = defaultdict[str, list[str]](list, {searched: []})
    for image in wanted:
        if len(image) != KEY_DIGITS:
            known = standing.last.get(image)
            found[known.dataset if known else searched].append(image)
    return found


def _without_index(image: str, dataset: str, standing: Standing, uploads: Mapping[str, bytes]) -> Picture:
    """Return a picture that no index has: of an upload, or of an archive whose index is gone."""
    known = standing.last.get(image)
    if known is None and image not in uploads:
        raise NotFoundError(f"picture {image[:16]}: in no index of {dataset}")
    return Picture(image=image, metadata=Metadata(title=known.title or None) if known else Metadata())


def _placed(picture: Picture, dataset: str, where: str | None, found: Proposal) -> PlacedPicture:
    if where is not None:
        return PlacedPicture(picture=picture, dataset=dataset, paragraph=None if where == _NOWHERE else int(where))
    paragraph, sentence = found.places.get(picture.image, (None, ""))
    return PlacedPicture(picture=picture, dataset=dataset, paragraph=paragraph, sentence=sentence, is_proposed=True)


def _wanted(places: Sequence[str], paragraphs: int) -> dict[str, str | None]:
    """Return where each picture is wanted: the number of a paragraph, "-", or None where a model is to say."""
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


def _decided(standing: Standing) -> list[str]:
    """Return the pictures that were chosen for an article; where none was, those on its shortlist."""
    return [each.image for each in standing.decided(Action.CHOOSE) or standing.decided(Action.SHORTLIST)]
