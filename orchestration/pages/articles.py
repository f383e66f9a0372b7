"""The newsroom's first page: an article on one side, the pictures that the archive has for it on the other.

GET  /                       an empty article; a picture as a query, or one of the index that is liked, is enough
GET  /articles/KEY           a kept article; the rest of what is asked for is in the address (`asking.py`)
POST /articles               keeps texts and leads to their address
POST /uploads                keeps a picture and leads to the address with it
GET  /images/INDEX/HASH      a picture, large, with all that is known of it
"""

from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams, UploadFile

from orchestration.links.linked import picture_address
from orchestration.pages.archives import Choice
from orchestration.pages.asking import COUNTS, SearchParameters, find, language_of
from orchestration.pages.entities import KINDS
from orchestration.pages.rendering import own_path, page
from orchestration.pages.shown import said_of
from orchestration.pages.state import Pages, Shared
from orchestration.pages.store import Article
from orchestration.pages.text_language import OFFERED, language_name
from orchestration.pages.writes import form_of
from pipelines.settings import ImagesConfig
from schemas.codecs import ImageRejected, decode_image
from schemas.decisions import Objection
from schemas.errors import NotFoundError, UsageError
from training.retrieval.records import Picture
from training.retrieval.search import RankBy

NAV = ("articles.nav", "/")
TEXTS = ("headline", "lead", "caption", "body")
MAX_TEXT = 200_000  # characters of one of them
KEPT_OPTIONS = ("index", "language", "n", "rank", "ui")  # that a new text leaves as they are
router = APIRouter()


@router.get("/")
def new(request: Request, shared: Shared) -> Response:
    """Show an empty article."""
    return _shown(request, shared, "", Article(texts={}))


@router.get("/articles/{key}")
def article(request: Request, shared: Shared, key: str) -> Response:
    """Show an article and its pictures."""
    return _shown(request, shared, key, shared.store.article(key))


@router.post("/articles")
async def keep_article(request: Request, shared: Shared) -> Response:
    """Keep what was typed and lead to its address."""
    form = await form_of(request)
    texts = {name: text for name in TEXTS if (text := str(form.get(name, "")).strip())}
    if long := [name for name, text in texts.items() if len(text) > MAX_TEXT]:
        raise UsageError(f"{long[0]}: expected at most {MAX_TEXT} characters")
    options = urlencode([(name, value) for name in KEPT_OPTIONS if (value := str(form.get(name, "")))])
    path = "/"
    if texts:
        path = f"/articles/{await run_in_threadpool(shared.store.keep_article, Article(texts=texts))}"
    return RedirectResponse(f"{path}?{options}" if options else path, 303)


@router.post("/uploads")
async def keep_upload(request: Request, shared: Shared) -> Response:
    """Keep a picture and lead to the address it was sent from, with it as a query."""
    form = await form_of(request)
    given, then = form.get("picture"), own_path(str(form.get("then", "/")))
    data = await given.read() if isinstance(given, UploadFile) else b""
    if not data:
        raise UsageError("expected a picture, found none")
    key = await run_in_threadpool(_keep_picture, shared, data)
    parts = urlsplit(then)
    kept = [(name, value) for name, value in QueryParams(parts.query).multi_items() if name != "picture"]
    return RedirectResponse(f"{parts.path}?{urlencode([*kept, ('picture', key)])}", 303)


@router.get("/images/{index}/{image}")
def image(request: Request, shared: Shared, index: str, image: str, back: str = "/") -> Response:
    """Show a picture of an index, with all that is known of it."""
    choice = shared.archives.choice(index)
    records = shared.archives.opened(choice).index.records
    (row,) = records.rows_of([image])
    if row is None:
        raise NotFoundError(f"picture {image[:16]}: not in this index")
    (found,) = records.pictures([row])
    return page(
        request, "image.html.j2", choice=choice, picture=found, copy=copy_of(choice, found), source=link_of(found),
        back=own_path(back),
    )  # fmt: skip


def copy_of(choice: Choice, picture: Picture) -> str:
    """Return the address of the copy of a picture of an index."""
    return picture_address(choice.manifest.dataset, picture.part, picture.image)


def link_of(picture: Picture) -> str | None:
    """Return where a picture came from, where a browser can be sent there."""
    source = picture.source or ""
    return source if urlsplit(source).scheme in ("http", "https") else None


def _keep_picture(shared: Pages, data: bytes) -> str:
    """Keep a picture that can be decoded within the limits of builds."""
    limits = ImagesConfig()
    try:
        decode_image(data, max_pixels=limits.max_pixels, min_side_px=1, allow_animated=True)
    except ImageRejected as problem:
        raise UsageError(f"the picture cannot be used: {problem.message}") from problem
    return shared.store.keep_upload(data)


def _shown(request: Request, shared: Pages, key: str, article: Article) -> Response:
    asked = SearchParameters.of(request.query_params)
    given = {name: article.texts.get(name, "") for name in TEXTS}
    content: dict[str, Any] = {"key": key, "article": article, "asked": asked, "given": given, "counts": COUNTS}
    content |= {"choices": shared.archives.choices, "choice": None, "found": None}
    content |= {"language": "", "known_languages": OFFERED}
    if shared.archives.choices:
        choice = shared.archives.choice(asked.index)
        content["choice"] = choice
        if article.texts or asked.is_query:
            archive = shared.archives.opened(choice)
            content["language"] = language_of(asked, article, archive)
            content["known_languages"] = archive.index.model.card.config.needs.languages or OFFERED
            content["found"] = find(shared, choice, article, asked)
    content |= {"said_of_article": said_of(shared, article.texts), "reasons": list(Objection)}
    helpers: dict[str, Any] = {"copy_of": copy_of, "language_name": language_name, "quote": quote}
    return page(request, "article.html.j2", **content, **helpers, kinds=KINDS, ranks=list(RankBy))
