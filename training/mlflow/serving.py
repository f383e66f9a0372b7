"""A model over HTTP: documents in, links out, for as long as it is not interrupted.

    POST /invocations     {"dataframe_records": [{...}, ...]} or {"dataframe_split": {"columns": [...], "data": [...]}},
                          as MLflow's scoring server takes them; the answer is {"predictions": [{...}, ...]}
    GET  /example         a body for it: a document of two sentences and one image
    GET  /ping, /version  an empty object, as a sign of life; the model's address and MLflow's version
    GET  /metrics         requests, documents and links, for Prometheus

One process serves, on loopback by default, without authentication: it is meant to stand behind a proxy that has it. On
loopback a page of another site whose name leads here is refused. Bounded are the size of a body, the pairs of sentences
and images in it, the time in which a request arrives and waits, and the number of open connections; one request is
computed at a time. A refusal is one line, `{"error_code", "message"}`.
"""

import json
import threading
from collections.abc import Iterator
from typing import Any

import mlflow
import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry, Counter
from starlette.concurrency import run_in_threadpool

from schemas.messages import UsageError
from training.linking.links import DEFAULT_OPTIONS, Linker, LinkOptions
from training.linking.rows import answers, documents_of, example, inputs
from training.listening import (
    METRICS,
    Metered,
    RequestError,
    TimedProtocol,
    bind,
    exposition,
    is_for_loopback,
    is_loopback,
    is_same_site,
    read_body,
)
from training.mlflow.loading import open_model

MAX_BODY_BYTES = 32 << 20
MAX_CONNECTIONS = 64  # more are answered with status 503
MAX_MESSAGE = 500
MAX_PAIRS = 1_000_000  # of sentences and images in the documents of a request; some seconds of a core
WAIT_S = 60.0  # for the requests before
CODES = {
    400: "INVALID_PARAMETER_VALUE",
    403: "PERMISSION_DENIED",
    408: "TIMEOUT",
    413: "TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    421: "MISDIRECTED_REQUEST",
    503: "TEMPORARILY_UNAVAILABLE",
}
RECORDS, SPLIT = "dataframe_records", "dataframe_split"


def run_serve(
    *,
    model: str,
    host: str,
    port: int,
    options: LinkOptions = DEFAULT_OPTIONS,
    tracking: str | None = None,
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield where a model is served, in lines and in values, and then serve it until interrupted.

    Raises:
        UsageError: there is no such model, it cannot link with these options, or the address cannot be had.
    """
    address = bind(host, port)  # first: a port that is taken is found before the model is loaded
    with address.bound:
        loaded = open_model(model, tracking)
        app = make_app(loaded.linker(options), is_local=is_loopback(host))
        ask = f"curl -s {address.url}/invocations -H 'Content-Type: application/json' -d @-"
        lines = [f"{loaded.uri} at {address.url}, until Ctrl-C", f"try: curl -s {address.url}/example | {ask}"]
        yield lines, {"model": loaded.uri, "address": address.url}
        config = uvicorn.Config(app, log_level="warning", http=TimedProtocol, limit_concurrency=MAX_CONNECTIONS)
        uvicorn.Server(config).run(sockets=[address.bound])


def make_app(linker: Linker, *, is_local: bool = False) -> FastAPI:
    """Return the application that answers for a model; of a local one, only to requests for the loopback's names."""
    needed = [name for name, is_needed in inputs(linker.model).items() if is_needed]
    one_at_a_time = threading.Lock()
    app, registry = FastAPI(openapi_url=None), CollectorRegistry()
    app.add_middleware(Metered, registry=registry)
    documents = Counter("multilink_documents", "Documents that were linked.", registry=registry)
    links = Counter("multilink_links", "Links that were predicted in them.", registry=registry)

    def predict(body: bytes) -> list[dict[str, Any]]:
        given = documents_of(linker.model, parse(body, needed))
        if sum(len(each.texts) * len(each.image_vectors) for each in given) > MAX_PAIRS:
            raise RequestError(413, f"expected at most {MAX_PAIRS} pairs of a sentence and an image of one document")
        if not one_at_a_time.acquire(timeout=WAIT_S):
            raise RequestError(503, f"other requests took {WAIT_S:.0f} s; send it again")
        try:
            found = answers(linker, given)
        finally:
            one_at_a_time.release()
        documents.inc(len(found))
        links.inc(sum(len(each["links"]) for each in found))
        return found

    async def guard(request: Request) -> None:
        if is_local and not is_for_loopback(request.headers):
            raise RequestError(421, "expected the name of this machine's loopback as Host")
        if request.method == "POST" and not is_same_site(request.headers):
            raise RequestError(403, "the request comes from another site")

    app.router.dependencies.append(Depends(guard))

    @app.post("/invocations")
    async def invocations(request: Request) -> JSONResponse:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise RequestError(415, "expected the header Content-Type: application/json")
        body = await read_body(request.receive, most_bytes=MAX_BODY_BYTES)
        return JSONResponse({"predictions": await run_in_threadpool(predict, body)})

    @app.exception_handler(UsageError)
    async def refuse(_: Request, problem: UsageError) -> JSONResponse:
        status = problem.status if isinstance(problem, RequestError) else 400
        line = " ".join(str(problem).split())[:MAX_MESSAGE]
        return JSONResponse({"error_code": CODES[status], "message": line}, status_code=status)

    @app.get("/example")
    async def example_body() -> JSONResponse:
        return JSONResponse({RECORDS: [example(linker.model)]})

    @app.get("/ping")
    async def ping() -> JSONResponse:
        return JSONResponse({})

    @app.get(METRICS)
    def metrics() -> Response:
        return exposition(registry)

    @app.get("/version")
    async def version() -> JSONResponse:
        return JSONResponse({"model": linker.uri, "mlflow": mlflow.__version__})

    return app


def parse(body: bytes, needed: list[str]) -> list[dict[str, Any]]:
    """Return the documents of a body, each with the columns that are needed.

    Raises:
        UsageError: the body is not JSON, or not of one of the two forms.
    """
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"expected JSON, found {str(problem) or type(problem).__name__}") from problem
    if isinstance(values, dict) and values.keys() == {SPLIT}:
        values = {RECORDS: _records(values[SPLIT])}
    if not isinstance(values, dict) or values.keys() != {RECORDS} or not isinstance(values[RECORDS], list):
        raise UsageError(f'expected {{"{RECORDS}": [{{...}}, ...]}} or {{"{SPLIT}": {{"columns": ..., "data": ...}}}}')
    for number, row in enumerate(values[RECORDS]):
        if not isinstance(row, dict):
            raise UsageError(f"row {number}: expected an object with {', '.join(needed)}")
        if missing := [name for name in needed if row.get(name) is None]:
            raise UsageError(f"row {number}: expected {', '.join(needed)}, found no {', '.join(missing)}")
    rows: list[dict[str, Any]] = values[RECORDS]
    return rows


def _records(split: Any) -> list[dict[str, Any]]:
    """Return the rows of a data frame that is written by its columns and its data."""
    try:
        return [dict(zip(split["columns"], row, strict=True)) for row in split["data"]]
    except (TypeError, KeyError, ValueError) as problem:
        raise UsageError(f"{SPLIT}: expected columns, and in data a list of their values for each row") from problem
