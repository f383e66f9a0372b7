"""Which picture stands beside which paragraph of an article: proposed by the model, changed by an editor, exported.

GET /placement/KEY          the article with its pictures; where they stand is in the address (`layout.py`)
GET /placement/KEY/html     the same as a page that holds its pictures      GET /placement/KEY/json    as JSON

Every move is an address, so nothing is written and a script only spares a click.
"""

from base64 import b64encode
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from orchestration.pages.articles import copy_of
from orchestration.pages.layout import PlacedPicture, layout_of
from orchestration.pages.rendering import address, environment, page
from orchestration.pages.state import Shared
from training.retrieval.records import Picture

router = APIRouter()


@router.get("/placement/{key}")
def placement(request: Request, shared: Shared, key: str) -> Response:
    """Show the article with its pictures."""
    article = shared.store.article(key)
    layout = layout_of(shared, article, request.query_params)
    fixed = {"place": [each.place for each in layout.pictures], "index": layout.choice.key}
    exports = {kind: address(request, f"/placement/{key}/{kind}", **fixed) for kind in ("html", "json")}
    return page(
        request, "placement.html.j2", key=key, article=article, layout=layout, copy_of=copy_of, exports=exports
    )  # fmt: skip


@router.get("/placement/{key}/html")
def as_html(request: Request, shared: Shared, key: str) -> Response:
    """Answer with a file that needs no other."""
    article = shared.store.article(key)
    layout = layout_of(shared, article, request.query_params)
    dataset = layout.choice.manifest.dataset

    def data_of(picture: Picture) -> str:
        return b64encode(shared.copies.jpeg(dataset, picture.part, picture.image)).decode("ascii")

    template = environment().get_template("placed.html.j2")
    return _file(template.render(article=article, layout=layout, data_of=data_of), "text/html", "article.html")


@router.get("/placement/{key}/json")
def as_json(request: Request, shared: Shared, key: str) -> Response:
    """Answer with the texts, and with each picture's paragraph, credit and licence."""
    article = shared.store.article(key)
    layout = layout_of(shared, article, request.query_params)
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


def _as_json(each: PlacedPicture) -> dict[str, Any]:
    said = each.picture.metadata
    return {
        "image": each.picture.image,
        "paragraph": each.paragraph,
        "source": each.picture.source,
        "title": said.title,
        "caption": said.caption,
        "credit": said.credit,
        "licence": each.picture.licence,
    }


def _file(text: str, kind: str, name: str) -> Response:
    return Response(text, media_type=kind, headers=_attached(name))


def _attached(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}
