"""A model over HTTP: documents in, links out, for as long as it is not interrupted.

    POST /invocations     {"dataframe_records": [{...}, ...]} or {"dataframe_split": {"columns": [...], "data": [...]}},
                          as MLflow's scoring server takes them; the answer is {"predictions": [{...}, ...]}
    GET  /example         a body for it: a document of two sentences and one image
    GET  /ping, /version  whether it is there; which model it is and which MLflow

One process serves, on loopback unless told otherwise, without authentication: it is meant to stand behind something
that has it. What it can be made to do is bounded: the size of a body, the time in which a request arrives, and the
number of open connections; one request is computed at a time. A refusal is one line, `{"error_code", "message"}`.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from schemas.errors import UsageError
from training.listening import REQUEST_S, TimedProtocol, bind
from training.metrics.calibration import Calibration
from training.mlflow import pyfunc
from training.mlflow.pyfunc import LinkPredictor
from training.mlflow.registry import LoadedModel, calibration_of, load, open_registry

MAX_BODY_BYTES = 32 << 20
MAX_CONNECTIONS = 64  # more are answered with status 503
MAX_MESSAGE = 500
RECORDS, SPLIT = "dataframe_records", "dataframe_split"


class RequestError(UsageError):
    """A request that is not answered: its HTTP status, a code and one line."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def run_serve(
    *,
    model: str,
    host: str,
    port: int,
    calibration_path: Path | None = None,
    tracking: str | None = None,
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield where a model is served, in lines and in values, and then serve it until interrupted.

    Raises:
        UsageError: there is no such model or calibration, or the address cannot be had.
    """
    loaded = load(model, open_registry(tracking, [model]))
    app = make_app(loaded, calibration_of(loaded, calibration_path))
    address = bind(host, port)
    ask = f"curl -s {address.url}/invocations -H 'Content-Type: application/json' -d @-"
    lines = [f"{loaded.uri} at {address.url}, until Ctrl-C", f"try: curl -s {address.url}/example | {ask}"]
    yield lines, {"model": loaded.uri, "address": address.url}
    config = uvicorn.Config(app, log_level="warning", http=TimedProtocol, limit_concurrency=MAX_CONNECTIONS)
    uvicorn.Server(config).run(sockets=[address.bound])


def make_app(loaded: LoadedModel, calibration: Calibration | None) -> FastAPI:
    """Return the application that answers for a model."""
    predictor = LinkPredictor(loaded.model, uri=loaded.uri, calibration=calibration)
    wanted = [name for name, is_needed in pyfunc.inputs(loaded.model).items() if is_needed]
    example = json.loads(pyfunc.example(loaded.model).to_json(orient="records"))
    one_at_a_time = threading.Lock()
    app = FastAPI(openapi_url=None)

    def predict(body: bytes) -> list[dict[str, Any]]:
        with one_at_a_time:
            return predictor.answers(parse(body, wanted))

    @app.post("/invocations")
    async def invocations(request: Request) -> JSONResponse:
        try:
            found = await run_in_threadpool(predict, await read_body(request))
        except UsageError as problem:
            status = problem.status if isinstance(problem, RequestError) else 400
            code = problem.code if isinstance(problem, RequestError) else "INVALID_PARAMETER_VALUE"
            line = " ".join(str(problem).split())[:MAX_MESSAGE]
            return JSONResponse({"error_code": code, "message": line}, status_code=status)
        return JSONResponse({"predictions": found})

    @app.get("/example")
    async def give_example() -> JSONResponse:
        return JSONResponse({RECORDS: example})

    @app.get("/ping")
    async def ping() -> JSONResponse:
        return JSONResponse({})

    @app.get("/version")
    async def version() -> JSONResponse:
        return JSONResponse({"model": loaded.uri, "mlflow": mlflow.__version__})

    return app


async def read_body(request: Request) -> bytes:
    """Return a request's body.

    Raises:
        RequestError: it is not JSON by its header, too large, or does not arrive in time.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/json":
        raise RequestError(415, "UNSUPPORTED_MEDIA_TYPE", "expected the header Content-Type: application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(REQUEST_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise RequestError(413, "TOO_LARGE", f"expected a body of at most {MAX_BODY_BYTES} bytes")
    except TimeoutError as problem:
        raise RequestError(408, "TIMEOUT", f"expected the whole body within {REQUEST_S:.0f} s") from problem
    return bytes(body)


def parse(body: bytes, wanted: list[str]) -> list[dict[str, Any]]:
    """Return the documents of a body, each with the columns that are wanted.

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
    for place, row in enumerate(values[RECORDS]):
        if not isinstance(row, dict):
            raise UsageError(f"row {place}: expected an object with {', '.join(wanted)}")
        if missing := [name for name in wanted if row.get(name) is None]:
            raise UsageError(f"row {place}: expected {', '.join(wanted)}, found no {', '.join(missing)}")
    rows: list[dict[str, Any]] = values[RECORDS]
    return rows


def _records(split: Any) -> list[dict[str, Any]]:
    """Return the rows of a data frame that is written by its columns and its data."""
    try:
        return [dict(zip(split["columns"], row, strict=True)) for row in split["data"]]
    except (TypeError, KeyError, ValueError) as problem:
        raise UsageError(f"{SPLIT}: expected columns, and in data a list of their values for each row") from problem
