"""Which picture stands beside which paragraph of an article: proposed by a model, changed by an editor.

GET /placement/KEY          the article with its pictures

    place=HASH    where the model says      place=HASH:3    beside the fourth paragraph      place=HASH:-    beside none

Without any: the pictures that were chosen for the article, and where none was, those on its shortlist. In place of a
content hash stands the key of a picture that was uploaded. Pictures of several archives are placed by a model of each.
Every move is an address, so nothing is written and a script only spares a click.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from newsroom.archive.records import Picture
from newsroom.decisions.database import KEY_DIGITS
from newsroom.decisions.records import Action, article_digest
from newsroom.decisions.store import Article
from newsroom.pages.decisions import standing_of
from newsroom.pages.rendering import address, page, picture_address
from newsroom.pages.search_jobs import language_of, look_up, upload_file
from newsroom.pages.searches import Opened
from newsroom.pages.state import Shared
from pipelines.sources.text import split_sentences
from schemas.errors import NotFoundError, UsageError
from schemas.metadata import Metadata
from training.similarity.assignment import predicted_pairs

MAX_PLACED = 100
MAX_SENTENCES = 2_000  # of an article whose pictures are placed
_PLACE = re.compile(rf"([0-9a-f]{{64}}|[0-9a-f]{{{KEY_DIGITS}}})(?::(\d{{1,6}}|-))?")
_NOWHERE = "-"
router = APIRouter()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPicture:
    """A picture and where it stands.

    Attributes:
        picture: what is known of it; of an upload, `image` is its key.
        copy: address of its copy, below the root.
        paragraph: beside it, from 0; None: beside none.
        sentence: that a model links it with; "": none, or an editor placed it.
    """

    picture: Picture
    copy: str
    paragraph: int | None
    sentence: str = ""

    @property
    def place(self) -> str:
        """Return the value of the parameter that puts it there."""
        return f"{self.picture.image}:{_NOWHERE if self.paragraph is None else self.paragraph}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Where a model would put pictures.

    Attributes:
        language: of the article.
        pictures: what the index knows of them, by content hash.
        places: by content hash, or key of an upload, the paragraph from 0 and the sentence that each goes with.
    """

    language: str
    pictures: dict[str, Picture]
    places: dict[str, tuple[int, str]]


def propose_places(
    opened: Opened, article: Article, paragraphs: Sequence[str], images: Sequence[str], free: Mapping[str, bytes | None]
) -> Proposal:
    """Return what an index knows of pictures, and where those go that have no place yet (Hessel 2019, 3.2).

    Every sentence is compared with every picture by their cosine (an index has no inputs of steps at link time), and
    the maximum-weight matching is taken, as in linking: a picture has at most one sentence, and a sentence one picture.

    Args:
        opened: the index.
        article: with its language.
        paragraphs: of its body.
        images: content hashes; those that the index has not are left out.
        free: those of them without a place; and uploads without one, by their keys, with their bytes.

    Raises:
        UsageError: there are too many sentences, or the model cannot read them.
    """
    language, known = language_of(opened, article), look_up(opened, images)
    split, index, places = split_sentences(paragraphs, language=language), opened.index, {}
    if len(split.sentences) > MAX_SENTENCES:
        raise UsageError(f"expected at most {MAX_SENTENCES} sentences, found {len(split.sentences)}")
    given, uploads = [image for image in free if image in known], [key for key, data in free.items() if data]
    if split.sentences and (names := [*given, *uploads]):
        with ExitStack() as files:
            own = [opened.queries.picture(str(files.enter_context(upload_file(free[key] or b"")))) for key in uploads]
        pictures = np.stack([*index.vectors.rows[index.records.rows_named(given)], *own])
        pairs = predicted_pairs(opened.sentences(split.sentences, language) @ pictures.T)
        places = {names[of]: (split.paragraphs[at], split.sentences[at]) for at, of in zip(*pairs, strict=True)}
    return Proposal(language=language, pictures=known, places=places)


@router.get("/placement/{key}")
async def placement(request: Request, shared: Shared, key: str) -> Response:
    """Show the article with its pictures where the address has them, or where models put them.

    Raises:
        UsageError: a place cannot be read.
        NotFoundError: a picture is in no index, and nobody decided on it.
    """
    article = await run_in_threadpool(shared.store.article, key)
    choice = shared.archives.choice(request.query_params.get("index", ""))
    paragraphs = [line for line in map(str.strip, article.texts.get("body", "").splitlines()) if line]
    standing = await run_in_threadpool(standing_of, shared, article_digest(article.texts))
    decided = standing.decided(Action.CHOOSE) or standing.decided(Action.SHORTLIST)
    wanted = _wanted(request.query_params.getlist("place"), len(paragraphs)) or {each.image: None for each in decided}
    uploads = {key: await run_in_threadpool(shared.store.upload, key) for key in wanted if len(key) == KEY_DIGITS}
    of: dict[str, list[str]] = {choice.manifest.dataset: [*uploads]}  # pictures of each version, by a model of each
    for image in (each for each in wanted if each not in uploads):
        of.setdefault(standing.last[image].dataset if image in standing.last else choice.manifest.dataset, []).append(
            image
        )
    language, placed = article.language, dict[str, PlacedPicture]()
    for dataset, images in of.items():
        found = Proposal(language=language, pictures={}, places={})
        if index := next(
            (each for each in (choice, *shared.archives.choices) if each.manifest.dataset == dataset), None
        ):
            free = {image: uploads.get(image) for image in images if wanted[image] is None}
            found = await shared.searches.run(request, propose_places, [index], article, paragraphs, images, free)
        language = found.language if index is choice else language
        for image in images:
            known = standing.last.get(image)
            if known is None and image not in uploads and image not in found.pictures:
                raise NotFoundError(f"picture {image[:16]}: in no index of {dataset}")
            gone = Picture(image=image, metadata=Metadata(title=known.title or None) if known else Metadata())
            picture = found.pictures.get(image, gone)
            copy = f"/uploads/{image}.jpg" if image in uploads else picture_address(dataset, picture.part, image)
            where, sentence = found.places.get(image, (None, ""))
            if (stated := wanted[image]) is not None:
                where, sentence = None if stated == _NOWHERE else int(stated), ""
            placed[image] = PlacedPicture(picture=picture, copy=copy, paragraph=where, sentence=sentence)
    pictures = [placed[image] for image in wanted]
    then = address(request, f"/placement/{key}", place=[each.place for each in pictures], index=choice.key)
    return page(
        request, "placement.html.j2", key=key, article=article, choice=choice, language=language, paragraphs=paragraphs,
        pictures=pictures, uploads=uploads, then=then,
    )  # fmt: skip


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
