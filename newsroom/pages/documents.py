"""The articles of the data set of an index, to be opened instead of pasting one."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from newsroom.labels.rows import find_documents, row_of, rows_at
from newsroom.pages.access import form_of
from newsroom.pages.rendering import address, page
from newsroom.pages.state import Pages, Shared
from newsroom.pages.store import Article
from schemas.documents import Role, Split
from schemas.errors import NotFoundError
from schemas.manifest import read_manifest

NAV = ("documents.nav", "/documents")
AT_ONCE = 40  # documents on a page
FIRST = Split.TEST
_COLUMNS = ("id", "language", "sentences", "images")
router = APIRouter()


@router.get("/documents")
def documents(request: Request, shared: Shared, index: str = "", split: str = FIRST, start: int = 0) -> Response:
    """List the documents of a split."""
    choice = shared.archives.choice(index)
    manifest, folder = read_manifest(shared.lake, choice.manifest.dataset)
    splits = {name: row.documents for name, row in manifest.splits.items() if row.documents}
    split = split if split in splits else next(iter(splits), split)
    start, total = max(0, start), splits.get(split, 0)
    parts = manifest.parts("documents", split)
    rows = rows_at(folder, [row_of(parts, number) for number in range(start, min(total, start + AT_ONCE))], _COLUMNS)
    first = [(row["id"], row["language"], next(iter(_texts(row["sentences"]).values()), "")) for row in rows]
    return page(
        request, "documents.html.j2", choice=choice, choices=shared.archives.choices, splits=splits, split=split,
        rows=[each for each in first if each[2]], start=start, at_once=AT_ONCE, has_more=start + AT_ONCE < total,
    )  # fmt: skip


@router.post("/documents")
async def open_document(request: Request, shared: Shared) -> Response:
    """Keep a document as an article and lead to its address."""
    form = await form_of(request)
    choice, name = shared.archives.choice(str(form.get("index", ""))), str(form.get("id", ""))
    key = await run_in_threadpool(_opened, shared, choice.manifest.dataset, name)
    return RedirectResponse(address(request, f"/articles/{key}", index=choice.key), 303)


def _opened(shared: Pages, reference: str, name: str) -> str:
    manifest, folder = read_manifest(shared.lake, reference)
    found = find_documents(manifest, folder, [name])
    if name not in found:
        raise NotFoundError(f"{reference}: no document {name[:200]!r}")
    (row,) = rows_at(folder, [found[name]], _COLUMNS)
    images = tuple(image["hash"] for image in row["images"])
    origin = f"{reference} {name}"
    article = Article(texts=_texts(row["sentences"]), language=row["language"], origin=origin, images=images)
    return shared.store.keep_article(article)


def _texts(sentences: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the sentences of a document as texts by role; those without one are a body."""
    texts: dict[str, list[str]] = {}
    for sentence in sentences:
        role = Role.BODY if sentence["role"] == Role.SENTENCE else sentence["role"]
        texts.setdefault(str(role), []).append(sentence["text"])
    return {role: text for role, parts in texts.items() if (text := " ".join(parts).strip())}
