"""The articles of the data set of an index, to be opened instead of pasting one."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from orchestration.pages.rendering import page
from orchestration.pages.state import Pages, Shared
from orchestration.pages.store import Article
from orchestration.pages.writes import form_of
from schemas.documents import Role, Split
from schemas.errors import NotFoundError
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest, read_manifest
from schemas.parts import read_part

NAV = ("documents.nav", "/documents")
AT_ONCE = 40  # documents on a page
FIRST = Split.TEST
_COLUMNS = ("id", "language", "sentences")
router = APIRouter()


@router.get("/documents")
def documents(request: Request, shared: Shared, index: str = "", split: str = FIRST, start: int = 0) -> Response:
    """List the documents of a split."""
    choice = shared.archives.choice(index)
    manifest, folder = read_manifest(shared.lake, choice.manifest.dataset)
    splits = {name: row.documents for name, row in manifest.splits.items() if row.documents}
    split = split if split in splits else next(iter(splits), split)
    start = max(0, start)
    rows = list(_rows(manifest, folder, split, start, AT_ONCE))
    first = [(row["id"], row["language"], list(_article(row, "").texts.values())[:1]) for row in rows]
    return page(
        request, "documents.html.j2", choice=choice, choices=shared.archives.choices, splits=splits, split=split,
        rows=[(name, language, text) for name, language, texts in first for text in texts],
        start=start, at_once=AT_ONCE, has_more=len(rows) == AT_ONCE,
    )  # fmt: skip


@router.post("/documents")
async def open_document(request: Request, shared: Shared) -> Response:
    """Keep a document as an article and lead to its address."""
    form = await form_of(request)
    index, split, name = (str(form.get(field, "")) for field in ("index", "split", "id"))
    key = await run_in_threadpool(_opened, shared, index, split, name)
    return RedirectResponse(f"/articles/{key}?index={shared.archives.choice(index).key}", 303)


def _opened(shared: Pages, index: str, split: str, name: str) -> str:
    reference = shared.archives.choice(index).manifest.dataset
    manifest, folder = read_manifest(shared.lake, reference)
    total = manifest.splits[split].documents if split in manifest.splits else 0
    for row in _rows(manifest, folder, split, 0, total):
        if row["id"] == name:
            return shared.store.keep_article(_article(row, f"{reference} {name}"))
    raise NotFoundError(f"{reference}, {split}: no document {name!r}")


def _rows(manifest: Manifest, folder: Folder, split: str, start: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield documents of a split, `count` from `start` on."""
    for entry in manifest.parts("documents", split):
        if start < entry.rows and count > 0:
            rows = _part(folder, entry).slice(start, count).to_pylist()
            count -= len(rows)
            yield from rows
        start = max(0, start - entry.rows)


@lru_cache(8)
def _part(folder: Folder, entry: FileEntry) -> pa.Table:
    return read_part(folder, entry, _COLUMNS)


def _article(row: dict[str, Any], origin: str) -> Article:
    """Return a document as texts by role; sentences without one are a body."""
    texts: dict[str, list[str]] = {}
    for sentence in row["sentences"]:
        role = Role.BODY if sentence["role"] == Role.SENTENCE else sentence["role"]
        texts.setdefault(str(role), []).append(sentence["text"])
    said = {role: text for role, parts in texts.items() if (text := " ".join(parts).strip())}
    return Article(texts=said, language=row["language"], origin=origin)
