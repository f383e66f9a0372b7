"""The newsroom's first page: the pictures that the archive has for an article, and the article beside them.

GET  /                       the newest pictures beside a box for a whole article; a picture as a query, or one of the
                             index that is liked, is enough
GET  /articles/KEY           a kept article; the rest of what is wanted is in the address (`search_jobs.py`)
POST /articles               keeps texts and leads to their address
POST /uploads                keeps a picture and leads to the address with it
GET  /images/INDEX/HASH      a picture alone, with all that is known of it
GET  /documents              the articles of the data set of an index, to be opened instead of pasting one
POST /documents              keeps the one of an `id`, of a `part` of the version, and leads to its address
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Form, HTTPException, Path, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams

from newsroom.archive.records import Picture
from newsroom.decisions.records import Action, Ranking, ShownPicture, article_digest
from newsroom.decisions.store import Article
from newsroom.labels.linked import Place, place_of, row_of, rows_at, titled
from newsroom.pages.archives import Choice
from newsroom.pages.decisions import Standing, sealed, standing_of
from newsroom.pages.limits import MAX_BODY_BYTES
from newsroom.pages.pictures import KEPT, jpeg_of, small_copy
from newsroom.pages.rendering import OFFERED, address, document_pictures, inner_path, own_path, page, paging
from newsroom.pages.search_jobs import COUNTS, Asked, SearchOutcome, SearchParameters, find, look_up, newest
from newsroom.pages.state import Field, Number, Pages, Shared, Upload
from newsroom.pages.words import KINDS, shown_texts
from newsroom.search.search import RankBy
from pipelines.settings import ImagesConfig
from schemas.codecs import ImageRejected, decode_image
from schemas.documents import Role
from schemas.manifest import Manifest, read_manifest
from schemas.messages import MultilinkError, NotFoundError, UsageError

TEXTS = ("headline", "lead", "caption", "body")
MAX_HEADLINE, MAX_LEAD = 200, 700  # characters of the first lines of what is pasted
NEWEST_S = 3.0  # that the first page waits for the newest pictures
MAX_TEXT = 20_000  # characters of one of them
PER_PAGE, SHOWN_PICTURES = 20, 3  # documents, and pictures of each
_COLUMNS = ("id", "language", "sentences", "images")
Typed = Annotated[str, Form(max_length=MAX_TEXT)]
router = APIRouter()


@router.get("/")
async def new(request: Request, shared: Shared, asked: Asked) -> Response:
    """Show an empty article."""
    return await _shown(request, shared, "", Article(texts={}), asked)


@router.get("/articles/{key}")
async def article(request: Request, shared: Shared, asked: Asked, key: str) -> Response:
    """Show an article and its pictures."""
    return await _shown(request, shared, key, await run_in_threadpool(shared.store.article, key), asked)


@router.post("/articles")
def keep_article(
    request: Request, shared: Shared, *, article: Typed = "", headline: Typed = "", lead: Typed = "",
    caption: Typed = "", body: Typed = "", index: Field = "", language: Field = "", n: Field = "", rank: Field = "",
    ui: Field = "",
) -> Response:  # fmt: skip
    """Keep what was typed and lead to its address; options stay as they are."""
    typed = {"headline": headline, "lead": lead, "caption": caption, "body": body}
    texts = texts_of(article) | {name: text.strip() for name, text in typed.items() if text.strip()}
    options = {"index": index, "language": language, "n": n, "rank": rank, "ui": ui}
    path = f"/articles/{shared.store.keep_article(Article(texts=texts))}" if texts else "/"
    return RedirectResponse(address(request, path, **{name: value for name, value in options.items() if value}), 303)


@router.post("/uploads", max_body_size=MAX_BODY_BYTES)
def keep_upload(request: Request, shared: Shared, picture: Upload = None, then: Field = "") -> Response:
    """Keep a picture and lead to the address it was sent from, with it as the query."""
    data = picture.file.read() if picture else b""
    if not data:
        raise UsageError("expected a picture, found none")
    key = _keep_picture(shared, data)
    parts = urlsplit(own_path(request, then))
    kept = [(name, value) for name, value in QueryParams(parts.query).multi_items() if name != "picture"]
    return RedirectResponse(f"{parts.path}?{urlencode([*kept, ('picture', key)])}", 303)


@router.get("/images/{index}/{image}")
async def image(request: Request, shared: Shared, index: str, image: str, back: str = "") -> Response:
    """Show a picture of an index, with all that is known of it."""
    choice = shared.archives.choice(index)
    found = await shared.searches.run(request, look_up, [choice], [image])
    if image not in found:
        raise NotFoundError(f"picture {image[:16]}: not in this index")
    return page(
        request, "image.html.j2", choice=choice, picture=found[image], back=own_path(request, back), view=None
    )  # fmt: skip


@router.get("/pictures/{reference}/{name}.jpg")
def picture(
    shared: Shared, reference: str, name: Annotated[str, Path(pattern="^[0-9a-f]{64}$")], part: str = ""
) -> Response:
    """Answer with a copy of a picture (`rendering.picture_address`)."""
    return Response(jpeg_of(shared.lake, reference, name, part), media_type="image/jpeg", headers=KEPT)


@router.get("/uploads/{key}.jpg")
def upload(shared: Shared, key: str) -> Response:
    """Answer with an uploaded picture, drawn again: nothing of the file but its pixels comes back."""
    return Response(small_copy(shared.store.upload(key)), media_type="image/jpeg", headers=KEPT)


def ranking_of(found: SearchOutcome, choice: Choice, query: str) -> Ranking:
    """Return what a page shows, as the log keeps it.

    Args:
        found: by the index.
        choice: the index.
        query: address of the page, below the root.
    """
    images = [image for group in found.groups for image in group]
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
                title=each.picture.title,
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


async def _shown(request: Request, shared: Pages, key: str, article: Article, parameters: SearchParameters) -> Response:
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
    return await run_in_threadpool(
        _page,
        request,
        shared,
        key=key,
        article=article,
        parameters=parameters,
        choice=choice,
        found=found,
        newest=pictures,
    )


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
        content["texts"] = shown_texts(found.query, found.result.sources, found.influence or {})
    if parameters.view and found is not None:
        return _alone(request, parameters.view, **content)
    return page(request, "article.html.j2", **content, kinds=KINDS, ranks=list(RankBy), actions=Action)


def _alone(request: Request, view: str, **content: Any) -> Response:
    """Show one picture of a ranking, with the way to those before and after it."""
    images = [each.picture for group in content["found"].groups for each in group]
    place = next((number for number, each in enumerate(images) if each.image == view), None)
    if place is None:
        raise NotFoundError(f"picture {view[:16]}: not among the pictures of this page")
    around = [images[number].image if 0 <= number < len(images) else None for number in (place - 1, place + 1)]
    back = address(request, view=None)
    return page(request, "image.html.j2", picture=images[place], around=around, back=back, view=view, **content)


@router.get("/documents")
def documents(
    request: Request, shared: Shared, *, index: str = "", q: str = "", order: Literal["stored", "title"] = "stored",
    number: Number = 1,
) -> Response:  # fmt: skip
    """List the documents whose first text contains what is looked for."""
    choice = shared.archives.choice(index)
    manifest, folder = read_manifest(shared.lake, choice.manifest.dataset)
    parts, found = titled(manifest, folder, containing=q.strip(), by_title=order == "title")
    place = paging(number, len(found), PER_PAGE)
    places = [row_of(parts, row) for row in found[place["start"] : place["end"]].tolist()]
    rows = [_row(manifest, *each) for each in zip(places, rows_at(folder, places, _COLUMNS), strict=True)]
    return page(
        request, "documents.html.j2", choice=choice, choices=shared.archives.choices, rows=rows, total=len(found), q=q,
        order=order, **place,
    )  # fmt: skip


def _row(manifest: Manifest, place: Place, row: Mapping[str, Any]) -> dict[str, Any]:
    pictures = document_pictures(manifest.reference, place[0].path, row["images"][:SHOWN_PICTURES])
    texts = [*_texts(row["sentences"]).values(), row["id"]]
    return {
        "id": row["id"],
        "part": place[0].path,
        "language": row["language"],
        "title": texts[0],
        "rest": texts[1:-1],
        "pictures": pictures,
    }


@router.post("/documents")
def open_document(
    request: Request, shared: Shared, name: Annotated[str, Form(alias="id")], part: Field, index: Field = ""
) -> Response:
    """Keep a document as an article and lead to its address."""
    choice = shared.archives.choice(index)
    reference = choice.manifest.dataset
    manifest, folder = read_manifest(shared.lake, reference)
    parts = [entry for split in manifest.splits for entry in manifest.parts("documents", split)]
    if (place := place_of(folder, parts, part, name)) is None:
        raise NotFoundError(f"{reference}: no document {name[:200]!r}")
    (row,) = rows_at(folder, [place], _COLUMNS)
    images = tuple(image["hash"] for image in row["images"])
    origin = f"{reference} {name}"
    article = Article(texts=_texts(row["sentences"]), language=row["language"], origin=origin, images=images)
    key = shared.store.keep_article(article)
    return RedirectResponse(address(request, f"/articles/{key}", index=choice.key), 303)


def _texts(sentences: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the sentences of a document as texts by role; those without one are a body."""
    texts: dict[str, list[str]] = {}
    for sentence in sentences:
        role = Role.BODY if sentence["role"] == Role.SENTENCE else sentence["role"]
        texts.setdefault(str(role), []).append(sentence["text"])
    return {role: text for role, parts in texts.items() if (text := " ".join(parts).strip())}
