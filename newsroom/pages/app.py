"""The application: limits around access around routers, every error as a page of one line; and its server."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from newsroom.decisions.database import open_database
from newsroom.decisions.store import ConflictError, Store
from newsroom.pages import (
    access,
    articles,
    datasets,
    decisions,
    labels,
)
from newsroom.pages.access import Access, guard_writes
from newsroom.pages.archives import AliasesOf, Archives
from newsroom.pages.limits import AT_ONCE, HEADERS, MAX_CONNECTIONS, MAX_FORM_BYTES, RETRY_S, Limits, Work
from newsroom.pages.monitoring import add_metrics
from newsroom.pages.rendering import page
from newsroom.pages.searches import Searches
from newsroom.pages.state import Pages, PagesSettings
from schemas.lake import Lake
from schemas.messages import MultilinkError, NotFoundError, UsageError
from training.listening import TimedProtocol, bind

LOOK_AGAIN_S, DAY_S = 15.0, 24 * 3600.0
log = logging.getLogger("multilink.pages")
MODULES = (articles, decisions, labels, datasets, access)
NAVIGATION = {
    "/": "articles.nav",
    "/documents": "documents.nav",
    "/decisions": "decisions.nav",
    "/comparison": "comparison.nav",
    "/links": "links.nav",
    "/datasets": "datasets.nav",
}


def run_pages(settings: PagesSettings) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield where the pages are, in lines and in values, and then serve them until interrupted.

    Raises:
        UsageError: the address cannot be had, or the settings do not fit together.
    """
    app = create_app(settings)
    address = bind(settings.host, settings.port)
    lines = [f"{address.url}, until Ctrl-C"]
    if not decisions.can_compare(app.state.pages):
        lines.append("no blind comparison: `multilink index` makes indexes of two models over one data set version")
    yield lines, {"address": address.url}
    config = uvicorn.Config(
        app,
        log_level="warning",
        http=TimedProtocol,
        limit_concurrency=MAX_CONNECTIONS,
        server_header=False,
        root_path=settings.root_path,
    )
    uvicorn.Server(config).run(sockets=[address.bound])


def create_app(settings: PagesSettings) -> FastAPI:
    """Return the application; it opens the store at once, and closes it and ends its processes when it ends.

    Raises:
        NotFoundError: the lake or an index is not there.
        UsageError: the store or the registry cannot be opened.
    """
    shared = open_pages(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = AT_ONCE
        tending = [asyncio.create_task(each(shared)) for each in (_follow_indexes, _expire)]
        yield
        for each in tending:
            each.cancel()
        shared.searches.close()
        shared.store.close()

    app = FastAPI(
        openapi_url=None, lifespan=lifespan, dependencies=[Depends(guard_writes)], max_body_size=MAX_FORM_BYTES
    )
    app.state.pages = shared
    app.state.nav = lambda: _navigation(shared)
    work = Work()
    app.add_middleware(Access, settings=settings, secret=shared.secret)
    app.add_middleware(Limits, work=work, user_header=settings.user_header)  # the last that is added stands outside
    app.mount("/static", StaticFiles(packages=[(__name__.rpartition(".")[0], "static")]), name="static")
    for module in MODULES:
        app.include_router(module.router)
    app.add_api_route("/health", work.health)
    add_metrics(app, shared.lake)
    for kind in (MultilinkError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _error)
    return app


def _navigation(shared: Pages) -> list[tuple[str, str]]:
    """Return the navigation: what works with the indexes that there are."""
    has = {"/documents": bool(shared.archives.choices), "/comparison": decisions.can_compare(shared)}
    return [(key, path) for path, key in NAVIGATION.items() if has.get(path, True)]


def open_pages(settings: PagesSettings) -> Pages:
    """Return what requests share."""
    lake = Lake.at(settings.lake)
    if lake.root.local is not None:  # an object store does not tell an empty lake from a mistyped one
        lake.check_exists()
    archives = Archives(lake, settings.indexes, _aliases(settings.tracking))
    store = Store(open_database(settings.store))
    return Pages(
        settings=settings,
        lake=lake,
        archives=archives,
        searches=Searches(settings.processes, settings.reading),
        store=store,
        secret=store.secret(),
    )


def _aliases(tracking: str | None) -> AliasesOf:
    """Return what tells the aliases of a registered model: by MLflow's registry, or that it has none."""
    if tracking is None:
        return lambda _: {}
    from training.mlflow.registry import registered
    from training.mlflow.runs import open_tracking

    client = open_tracking(tracking)

    def of(name: str) -> Mapping[str, str]:
        with suppress(NotFoundError):
            return registered(client, name).aliases
        return {}

    return of


async def _follow_indexes(shared: Pages, wait: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Open the first index beside those at work, whenever it is another; only then is it the first for visitors."""
    opened: list[tuple[str, str]] | None = None  # without an index a process begins, too
    while True:
        try:
            found = await run_in_threadpool(shared.archives.look)
            if (first := [each.content for each in found[:1]]) != opened:
                await shared.searches.prepare([*found[:1], *shared.archives.choices[:1]])  # and the one in use
                opened = first
            shared.archives.choices = found
        except Exception as problem:  # noqa: BLE001 - of whichever store, registry or model; the next look may do better
            log.warning("indexes cannot be looked for, or the first one cannot be opened: %s", problem)
        await wait(LOOK_AGAIN_S)


async def _expire(shared: Pages) -> None:
    """Remove what is old, once a day."""
    while shared.settings.keep_days:
        try:
            await run_in_threadpool(shared.store.expire, shared.settings.keep_days)
        except MultilinkError as problem:
            log.warning("old uploads and texts cannot be removed: %s", problem)
        await asyncio.sleep(DAY_S)


async def _error(request: Request, problem: Exception) -> Response:
    """Return the page of an error; of one that nobody expected, the server's log has the rest."""
    status, line = _said_of(problem)
    answer = page(request, "error.html.j2", status=status, code=status, line=line, then="")
    if status == 503:
        answer.headers["retry-after"] = str(RETRY_S)
    answer.headers.update(HEADERS)  # of an unexpected one, `Limits` does not hear
    if "hx-request" in request.headers:  # in place of the page, not of the part that was asked for
        answer.headers.update({"HX-Retarget": "main", "HX-Reselect": "main", "HX-Reswap": "outerHTML"})
    return answer


def _said_of(problem: Exception) -> tuple[int, str]:
    """Return the status and the line of an error; "": the heading of its page, in the visitor's language, is enough."""
    match problem:
        case ConflictError():
            return 409, ""
        case MultilinkError():
            return 404 if isinstance(problem, NotFoundError) else 400 if isinstance(problem, UsageError) else 500, str(
                problem
            )
        case HTTPException(status_code=status, detail=detail):
            return status, "" if detail == HTTPStatus(status).phrase else str(detail)
        case RequestValidationError():
            return 400, "; ".join(f"{error['loc'][-1]}: {error['msg']}" for error in problem.errors())
    return 500, ""
