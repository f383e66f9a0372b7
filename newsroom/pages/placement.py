"""Which picture stands beside which paragraph of an article: proposed by a model, changed by an editor, exported.

GET /placement/KEY          the article with its pictures; where they stand is in the address (`layout.py`)
GET /placement/KEY/html     the same as a page that holds its pictures      GET /placement/KEY/json    as JSON

Every move is an address, so nothing is written and a script only spares a click.
"""

from base64 import b64encode
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from newsroom.pages.layout import Layout, PlacedPicture, layout_of
from newsroom.pages.pictures import small_copy
from newsroom.pages.rendering import address, environment, page
from newsroom.pages.state import Pages, Shared
from newsroom.pages.store import Article

router = APIRouter()


@router.get("/placement/{key}")
async def placement(request: Request, shared: Shared, key: str) -> Response:
    """Show the article with its pictures."""
    article, layout = await _laid_out(request, shared, key)
    fixed: dict[str, Any] = {"place": layout.places, "index": layout.choice.key}
    exports = {kind: address(request, f"/placement/{key}/{kind}", **fixed) for kind in ("html", "json")}
    then = address(request, **fixed)
    return page(request, "placement.html.j2", key=key, article=article, layout=layout, exports=exports, then=then)


@router.get("/placement/{key}/html")
async def as_html(request: Request, shared: Shared, key: str) -> Response:
    """Answer with a file that needs no other."""
    article, layout = await _laid_out(request, shared, key)

    def data_of(each: PlacedPicture) -> str:
        image = each.picture.image
        jpeg = shared.copies.jpeg(each.dataset, image) if each.dataset else small_copy(shared.store.upload(image))
        return b64encode(jpeg).decode("ascii")

    def render() -> str:
        return environment().get_template("placed.html.j2").render(article=article, layout=layout, data_of=data_of)

    text = await run_in_threadpool(render)
    return Response(text, media_type="text/html", headers=_attached("article.html"))


@router.get("/placement/{key}/json")
async def as_json(request: Request, shared: Shared, key: str) -> Response:
    """Answer with the texts, and with each picture's paragraph, credit and licence."""
    article, layout = await _laid_out(request, shared, key)
    manifest = layout.choice.manifest
    values = {
        "texts": dict(article.texts),
        "language": layout.language,
        "paragraphs": layout.paragraphs,
        "pictures": [_as_json(each) for each in layout.pictures],
        "model": manifest.model,
        "dataset": manifest.dataset,
    }
    return JSONResponse(values, headers=_attached("article.json"))


async def _laid_out(request: Request, shared: Pages, key: str) -> tuple[Article, Layout]:
    article = await run_in_threadpool(shared.store.article, key)
    return article, await layout_of(request, shared, article)


def _as_json(each: PlacedPicture) -> dict[str, Any]:
    stated = each.picture.metadata
    return {
        "image": each.picture.image,
        "dataset": each.dataset,
        "paragraph": each.paragraph,
        "source": each.picture.source,
        "title": stated.title,
        "caption": stated.caption,
        "credit": stated.credit,
        "licence": each.picture.licence,
    }


def _attached(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}
