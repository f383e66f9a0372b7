"""The articles of the data set of an index, to be opened instead of pasting one."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import RedirectResponse, Response

from newsroom.labels.linked import picture_address
from newsroom.labels.rows import Place, find_documents, rows_at, titled
from newsroom.pages.rendering import address, page, paging
from newsroom.pages.state import Field, Shared
from newsroom.pages.store import Article
from schemas.documents import Role
from schemas.errors import NotFoundError
from schemas.manifest import Manifest, read_manifest

NAV = ("documents.nav", "/documents")
AT_ONCE, SHOWN_PICTURES = 20, 3  # documents on a page, pictures of each
_COLUMNS = ("id", "language", "sentences", "images")
router = APIRouter()


@router.get("/documents")
def documents(
    request: Request, shared: Shared, *, index: str = "", q: str = "", order: Literal["stored", "title"] = "stored",
    number: Annotated[int, Query(ge=1, alias="page")] = 1,
) -> Response:  # fmt: skip
    """List the documents whose first text contains what is looked for."""
    choice = shared.archives.choice(index)
    manifest, folder = read_manifest(shared.lake, choice.manifest.dataset)
    found = titled(manifest, folder, containing=q.strip(), by_title=order == "title")
    place = paging(number, len(found), AT_ONCE)
    places = found[place["start"] : place["end"]]
    rows = [_row(manifest, *each) for each in zip(places, rows_at(folder, places, _COLUMNS), strict=True)]
    return page(
        request, "documents.html.j2", choice=choice, choices=shared.archives.choices, rows=rows, total=len(found), q=q,
        order=order, **place,
    )  # fmt: skip


def _row(manifest: Manifest, place: Place, row: Mapping[str, Any]) -> dict[str, Any]:
    part = place[0].path.replace("documents/", "images/", 1)
    pictures = [picture_address(manifest.reference, part, image["hash"]) for image in row["images"][:SHOWN_PICTURES]]
    texts = [*_texts(row["sentences"]).values(), row["id"]]
    return {"id": row["id"], "language": row["language"], "title": texts[0], "rest": texts[1:-1], "pictures": pictures}


@router.post("/documents")
def open_document(
    request: Request, shared: Shared, name: Annotated[str, Form(alias="id")] = "", index: Field = ""
) -> Response:
    """Keep a document as an article and lead to its address."""
    choice = shared.archives.choice(index)
    reference = choice.manifest.dataset
    manifest, folder = read_manifest(shared.lake, reference)
    found = find_documents(manifest, folder, [name])
    if name not in found:
        raise NotFoundError(f"{reference}: no document {name[:200]!r}")
    (row,) = rows_at(folder, [found[name]], _COLUMNS)
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
