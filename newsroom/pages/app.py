"""The application: limits around access around routers, every error as a page of one line; and its server."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from newsroom.decisions.log import ConflictError, DecisionLog
from newsroom.pages import (
    access,
    articles,
    comparison,
    datasets,
    decisions,
    documents,
    labels,
    links,
    placement,
)
from newsroom.pages.access import Access, guard_writes
from newsroom.pages.archives import AliasesOf, Archives
from newsroom.pages.limits import AT_ONCE, HEADERS, MAX_CONNECTIONS, MAX_SPARE, RETRY_S, Bodies, Limits, Work
from newsroom.pages.monitoring import add_metrics
from newsroom.pages.pictures import Copies
from newsroom.pages.rendering import page
from newsroom.pages.searches import Searches
from newsroom.pages.state import Pages, PagesSettings
from newsroom.pages.store import Store
from schemas.errors import MultilinkError, NotFoundError, UsageError
from schemas.lake import Lake
from training.listening import TimedProtocol, bind

LOOK_AGAIN_S, DAY_S = 15.0, 24 * 3600.0
log = logging.getLogger("multilink.pages")
# In the order of the navigation; each has a `router`, and `NAV` where it stands there.
MODULES = (articles, documents, decisions, placement, comparison, links, labels, datasets, access)


def run_pages(settings: PagesSettings) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield where the pages are, in lines and in values, and then serve them until interrupted.

    Raises:
        UsageError: the address cannot be had, or the settings do not fit together.
    """
    app = create_app(settings)
    address = bind(settings.host, settings.port)
    lines = [f"{address.url}, until Ctrl-C"]
    if not comparison.can_compare(app.state.pages):
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
        shared.close()

    app = FastAPI(openapi_url=None, lifespan=lifespan, dependencies=[Depends(guard_writes)])
    app.state.pages = shared
    app.state.nav = lambda: _navigation(shared)
    work = Work()
    app.add_middleware(Bodies, work=work)
    app.add_middleware(Access, settings=settings, secret=shared.secret)
    app.add_middleware(Limits, work=work, user_header=settings.user_header)  # the last that is added stands outside
    app.mount("/static", StaticFiles(packages=[(__name__.rpartition(".")[0], "static")]), name="static")
    for module in MODULES:
        app.include_router(module.router)
    app.add_api_route("/health", _health(work))
    add_metrics(app, shared.lake)
    for kind in (MultilinkError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _error)
    return app


def _navigation(shared: Pages) -> list[tuple[str, str]]:
    """Return the navigation: what works with the indexes that there are."""
    without = {documents: not shared.archives.choices, comparison: not comparison.can_compare(shared)}
    return [module.NAV for module in MODULES if hasattr(module, "NAV") and not without.get(module)]


def open_pages(settings: PagesSettings) -> Pages:
    """Return what requests share."""
    lake = Lake.at(settings.lake)
    if lake.root.local is not None:  # an object store does not tell an empty lake from a mistyped one
        lake.check_exists()
    archives = Archives(lake, settings.indexes, _aliases(settings.tracking))
    store = Store(settings.store)
    return Pages(
        settings=settings,
        lake=lake,
        archives=archives,
        searches=Searches(settings.processes, settings.reading),
        copies=Copies(lake),
        store=store,
        decisions=DecisionLog(store.engine),
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
    found = shared.archives.choices
    while True:
        try:
            if (first := [each.content for each in found[:1]]) != opened:
                await shared.searches.prepare([*found[:1], *shared.archives.choices[:1]])  # and the one in use
                opened = first
            shared.archives.choices = found
        except Exception as problem:  # noqa: BLE001 - of whichever store or model; the next look may do better
            log.warning("the first index cannot be opened: %s", problem)
        found = shared.archives.choices
        await wait(LOOK_AGAIN_S)
        try:
            found = await run_in_threadpool(shared.archives.look)
        except Exception as problem:  # noqa: BLE001 - likewise
            log.warning("indexes cannot be looked for: %s", problem)


async def _expire(shared: Pages) -> None:
    """Remove what is old, once a day."""
    while shared.settings.keep_days:
        try:
            await run_in_threadpool(shared.store.expire, shared.settings.keep_days, shared.decisions)
        except (MultilinkError, SQLAlchemyError) as problem:
            log.warning("old uploads and texts cannot be removed: %s", problem)
        await asyncio.sleep(DAY_S)


def _health(work: Work) -> Callable[[], Awaitable[Response]]:
    """Return what says whether a page can be made: not where every spare thread hangs."""

    async def health() -> Response:
        if work.late < MAX_SPARE:
            return PlainTextResponse("ok\n")
        return PlainTextResponse(f"{work.late} answers hang\n", 503)

    return health


async def _error(request: Request, problem: Exception) -> Response:
    """Return the page of an error; of one that nobody expected, the server's log has the rest."""
    status, line = 500, ""
    if isinstance(problem, MultilinkError):
        status = 404 if isinstance(problem, NotFoundError) else 400 if isinstance(problem, UsageError) else 500
        line = str(problem)
    if isinstance(problem, ConflictError):
        status, line = 409, ""
    elif isinstance(problem, HTTPException):
        status, line = problem.status_code, str(problem.detail)
        line = "" if line == HTTPStatus(status).phrase else line  # the heading says it in the visitor's language
    elif isinstance(problem, RequestValidationError):
        status = 400
        line = "; ".join(f"{error['loc'][-1]}: {error['msg']}" for error in problem.errors())
    answer = page(request, "error.html.j2", status=status, code=status, line=line, then="")
    if status == 503:
        answer.headers["retry-after"] = str(RETRY_S)
    answer.headers.update(HEADERS)  # of an unexpected one, `Limits` does not hear
    if "hx-request" in request.headers:  # in place of the page, not of the part that was asked for
        answer.headers.update({"HX-Retarget": "main", "HX-Reselect": "main", "HX-Reswap": "outerHTML"})
    return answer
