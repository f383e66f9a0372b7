"""The newsroom's first page: the pictures that the archive has for an article, and the article beside them.

GET  /                       the newest pictures beside a box for a whole article; a picture as a query, or one of the
                             index that is liked, is enough
GET  /articles/KEY           a kept article; the rest of what is wanted is in the address (`search_request.py`)
POST /articles               keeps texts and leads to their address
POST /uploads                keeps a picture and leads to the address with it
GET  /images/INDEX/HASH      a picture alone, with all that is known of it
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Form, HTTPException, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams

from newsroom.archive.records import Picture
from newsroom.decisions.rankings import title_of
from newsroom.decisions.records import Action, Ranking, ShownPicture, article_digest
from newsroom.labels.linked import picture_address
from newsroom.pages.archives import Choice
from newsroom.pages.decisions import Standing, sealed, standing_of
from newsroom.pages.pictures import KEPT, small_copy
from newsroom.pages.rendering import OFFERED, address, inner_path, language_name, own_path, page
from newsroom.pages.search_jobs import SearchOutcome, find, look_up, newest
from newsroom.pages.search_request import COUNTS, SearchParameters
from newsroom.pages.state import Field, Pages, Shared, Upload
from newsroom.pages.store import Article
from newsroom.pages.words import KINDS, shown_texts
from newsroom.search.search import RankBy
from pipelines.settings import ImagesConfig
from schemas.codecs import ImageRejected, decode_image
from schemas.errors import MultilinkError, NotFoundError, UsageError

NAV = ("articles.nav", "/")
TEXTS = ("headline", "lead", "caption", "body")
MAX_HEADLINE, MAX_LEAD = 200, 700  # characters of the first lines of what is pasted
NEWEST_S = 3.0  # that the first page waits for the newest pictures
MAX_TEXT = 20_000  # characters of one of them
router = APIRouter()


@router.get("/")
async def new(request: Request, shared: Shared) -> Response:
    """Show an empty article."""
    return await _shown(request, shared, "", Article(texts={}))


@router.get("/articles/{key}")
async def article(request: Request, shared: Shared, key: str) -> Response:
    """Show an article and its pictures."""
    return await _shown(request, shared, key, await run_in_threadpool(shared.store.article, key))


@router.post("/articles")
def keep_article(
    request: Request, shared: Shared, *, article: Field = "", headline: Field = "", lead: Field = "",
    caption: Field = "", body: Field = "", index: Field = "", language: Field = "", n: Field = "", rank: Field = "",
    ui: Field = "",
) -> Response:  # fmt: skip
    """Keep what was typed and lead to its address; options stay as they are."""
    typed = {"article": article, "headline": headline, "lead": lead, "caption": caption, "body": body}
    given = {name: text.strip() for name, text in typed.items()}
    for name, text in given.items():
        if len(text) > MAX_TEXT:
            raise UsageError(f"{name}: expected at most {MAX_TEXT} characters, found {len(text)}")
    texts = texts_of(given.pop("article")) | {name: text for name, text in given.items() if text}
    options = {"index": index, "language": language, "n": n, "rank": rank, "ui": ui}
    path = f"/articles/{shared.store.keep_article(Article(texts=texts))}" if texts else "/"
    return RedirectResponse(address(request, path, **{name: value for name, value in options.items() if value}), 303)


@router.post("/uploads")
def keep_upload(
    request: Request, shared: Shared, picture: Upload = None, then: Field = "",
    use: Annotated[str, Form(alias="as")] = "",
) -> Response:  # fmt: skip
    """Keep a picture and lead to the address it was sent from, with it as a query or, of a placement, in it."""
    data = picture.file.read() if picture else b""
    if not data:
        raise UsageError("expected a picture, found none")
    key = _keep_picture(shared, data)
    parts, is_placed = urlsplit(own_path(request, then)), use == "place"
    kept = [(name, value) for name, value in QueryParams(parts.query).multi_items() if is_placed or name != "picture"]
    return RedirectResponse(f"{parts.path}?{urlencode([*kept, ('place' if is_placed else 'picture', key)])}", 303)


@router.get("/images/{index}/{image}")
async def image(request: Request, shared: Shared, index: str, image: str, back: str = "") -> Response:
    """Show a picture of an index, with all that is known of it."""
    choice = shared.archives.choice(index)
    found = await shared.searches.run(request, look_up, [choice], [image])
    if image not in found:
        raise NotFoundError(f"picture {image[:16]}: not in this index")
    content = {"picture": found[image], "source": link_of(found[image]), "back": own_path(request, back), "view": None}
    return page(request, "image.html.j2", choice=choice, copy_of=copy_of, title_of=title_of, **content)


@router.get("/pictures/{reference}/{name}.jpg")
def picture(shared: Shared, reference: str, name: str, part: str = "") -> Response:
    """Answer with a copy of a picture (`newsroom.labels.linked.picture_address`)."""
    return Response(shared.copies.jpeg(reference, name, part), media_type="image/jpeg", headers=KEPT)


@router.get("/uploads/{key}.jpg")
def upload(shared: Shared, key: str) -> Response:
    """Answer with an uploaded picture, drawn again: nothing of the file but its pixels comes back."""
    return Response(small_copy(shared.store.upload(key)), media_type="image/jpeg", headers=KEPT)


def copy_of(choice: Choice, picture: Picture) -> str:
    """Return the address, below the root, of the copy of a picture of an index."""
    return picture_address(choice.manifest.dataset, picture.part, picture.image)


def link_of(picture: Picture) -> str | None:
    """Return where a picture came from, where a browser can be sent there."""
    source = picture.source or ""
    return source if urlsplit(source).scheme in ("http", "https") else None


def ranking_of(found: SearchOutcome, choice: Choice, query: str) -> Ranking:
    """Return what a page shows, as the log keeps it.

    Args:
        found: by the index.
        choice: the index.
        query: address of the page, below the root.
    """
    images = [image for group in found.groups for image in (group.first, *group.folded)]
    return Ranking(
        texts=found.query.texts,
        language=found.query.language,
        models=(choice.manifest.model,),
        dataset=choice.manifest.dataset,
        indexes=(choice.key,),
        query=query,
        pictures=tuple(
            ShownPicture(
                image=each.picture.image,
                score=each.score,
                similarity=each.similarity,
                probability=each.probability,
                title=title_of(each.picture),
            )
            for each in images
        ),
    )


def _keep_picture(shared: Pages, data: bytes) -> str:
    """Keep a picture that can be decoded within the limits of builds."""
    limits = ImagesConfig()
    try:
        decode_image(data, max_pixels=limits.max_pixels, min_side_px=1, allow_animated=True)
    except ImageRejected as problem:
        raise UsageError(f"the picture cannot be used: {problem.message}") from problem
    return shared.store.keep_upload(data)


def texts_of(pasted: str) -> dict[str, str]:
    r"""Return a whole article as texts: a short first line is the headline, a short one after it the lead.

    >>> texts_of("Flood\n\nThe Rhine rises.\n\nFirst.\nSecond.")
    {'headline': 'Flood', 'lead': 'The Rhine rises.', 'body': 'First.\n\nSecond.'}
    """
    lines, texts = [line for line in map(str.strip, pasted.splitlines()) if line], dict[str, str]()
    if lines and len(lines[0]) <= MAX_HEADLINE:
        texts["headline"] = lines.pop(0)
    if len(lines) > 1 and len(lines[0]) <= MAX_LEAD:
        texts["lead"] = lines.pop(0)
    return texts | ({"body": "\n\n".join(lines)} if lines else {})


async def _shown(request: Request, shared: Pages, key: str, article: Article) -> Response:
    parameters = SearchParameters.of(request.query_params)
    choice = shared.archives.choice(parameters.index) if shared.archives.choices else None
    found, pictures = None, list[Picture]()
    if choice is not None and not article.texts and not parameters.is_query:
        request.state.until = min(request.state.until, asyncio.get_running_loop().time() + NEWEST_S)
        with suppress(HTTPException, MultilinkError):  # the box is worth a page without them
            pictures = await shared.searches.run(request, newest, [choice])
    elif choice is not None:
        upload = b""
        if parameters.picture:
            upload = await run_in_threadpool(shared.store.upload, parameters.picture)
        found = await shared.searches.run(request, find, [choice], article, parameters, upload)
    given: dict[str, Any] = {
        "key": key,
        "article": article,
        "parameters": parameters,
        "choice": choice,
        "newest": pictures,
    }
    return await run_in_threadpool(_page, request, shared, found=found, **given)


def _page(
    request: Request, shared: Pages, *, key: str, article: Article, parameters: SearchParameters,
    choice: Choice | None, found: SearchOutcome | None, newest: Sequence[Picture],
) -> Response:  # fmt: skip
    digest = article_digest(article.texts)
    content: dict[str, Any] = {
        "key": key, "article": article, "parameters": parameters, "counts": COUNTS, "max_text": MAX_TEXT,
        "given": {name: article.texts.get(name, "") for name in TEXTS},
        "choices": shared.archives.choices, "choice": choice, "found": found, "newest": newest,
        "known_languages": (found.languages if found else ()) or OFFERED,
        "standing": standing_of(shared, digest) if digest else Standing(),
        "then": address(request), "shown": "", "texts": [], "is_blind": False,
    }  # fmt: skip
    if choice is not None and found is not None:
        query = inner_path(request) + (f"?{request.url.query}" if request.url.query else "")
        content["shown"] = sealed(shared, key, ranking_of(found, choice, query))
        content["texts"] = shown_texts(found.query, found.result.sources, found.influence)
    helpers: dict[str, Any] = {"copy_of": copy_of, "title_of": title_of, "language_name": language_name}
    if parameters.view and found is not None:
        return _alone(request, parameters.view, **content, **helpers)
    return page(request, "article.html.j2", **content, **helpers, kinds=KINDS, ranks=list(RankBy), actions=Action)


def _alone(request: Request, view: str, **content: Any) -> Response:
    """Show one picture of a ranking, with the way to those before and after it."""
    images = [each.picture for group in content["found"].groups for each in (group.first, *group.folded)]
    place = next((number for number, each in enumerate(images) if each.image == view), None)
    if place is None:
        raise NotFoundError(f"picture {view[:16]}: not among the pictures of this page")
    around = [images[number].image if 0 <= number < len(images) else None for number in (place - 1, place + 1)]
    source, back = link_of(images[place]), address(request, view=None)
    return page(
        request, "image.html.j2", picture=images[place], around=around, source=source, back=back, view=view, **content
    )  # fmt: skip
