"""A model over HTTP: MLflow's own scoring server around the predictor that every registered version has.

    POST /invocations     documents in, links out, in MLflow's formats ({"dataframe_records": [{...}]})
    GET  /example         a body for it: a document of two sentences and one image
    GET  /ping, /version  MLflow's

MLflow's server is a function of a loaded model; here it gets the model with its address and its calibration, so that an
answer says which version it is from and links have a probability. One process serves, on loopback unless told
otherwise, without authentication: it is meant to stand behind something that has it. A refusal is one line.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import mlflow.pyfunc
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from mlflow.models import Model
from mlflow.pyfunc import scoring_server

from schemas.errors import UsageError
from training.linking.calibration import Calibration
from training.mlflow.loading import LoadedModel
from training.mlflow.registry import signature_of
from training.registry import pyfunc_model
from training.registry.pyfunc_model import LinkPredictor

MAX_MESSAGE = 500
Answer = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Address:
    """A bound socket and what it is called from outside."""

    bound: socket.socket
    url: str


def bind(host: str, port: int) -> Address:
    """Return a socket that listens; with port 0, on one that is free.

    Raises:
        UsageError: the address is another's, or not this machine's.
    """
    try:
        bound = socket.create_server((host, port))
    except OSError as problem:
        raise UsageError(f"--host {host} --port {port}: {problem.strerror or problem}") from problem
    return Address(bound, f"http://{host}:{bound.getsockname()[1]}")


def serve(app: FastAPI, address: Address) -> None:
    """Answer until interrupted."""
    config = uvicorn.Config(app, log_level="warning")
    uvicorn.Server(config).run(sockets=[address.bound])


def make_app(loaded: LoadedModel, calibration: Calibration | None) -> FastAPI:
    """Return MLflow's scoring server of a model, with an example, and refusals in one line."""
    described = Model(signature=signature_of(loaded.model))
    mlflow.pyfunc.add_to_model(described, loader_module=pyfunc_model.__name__)
    predictor = LinkPredictor(loaded.model, uri=loaded.uri, calibration=calibration)
    app: FastAPI = scoring_server.init(mlflow.pyfunc.PyFuncModel(model_meta=described, model_impl=predictor))
    example = json.loads(pyfunc_model.example(loaded.model).to_json(orient="records"))

    @app.get("/example")
    def give_example() -> JSONResponse:
        return JSONResponse({"dataframe_records": example})

    app.middleware("http")(in_one_line)
    return app


async def in_one_line(request: Request, answer: Answer) -> Response:
    """Answer a request; what MLflow refuses with data, traces and several lines is told in one."""
    if request.method == "POST" and "content-type" not in request.headers:
        return _refusal(415, "UNSUPPORTED_MEDIA_TYPE", "expected the header Content-Type: application/json")
    response = await answer(request)
    if response.status_code < 400:
        return response
    body = b"".join([part async for part in response.body_iterator])  # type: ignore[attr-defined]
    try:
        values = json.loads(body)
        return _refusal(response.status_code, values["error_code"], refusal_line(values["message"]))
    except (ValueError, KeyError, TypeError):
        return _refusal(response.status_code, "ERROR", refusal_line(body.decode("utf-8", "replace")))


def refusal_line(message: str) -> str:
    """Return what is wrong in one line: MLflow's message without the data it was given."""
    words = message.partition("\nInput:")[0].partition(" IMPORTANT:")[0]
    if words.startswith("Failed to"):
        words = words.rpartition("Error: ")[2]
    return " ".join(words.split())[:MAX_MESSAGE]


def _refusal(status: int, code: str, line: str) -> JSONResponse:
    return JSONResponse({"error_code": code, "message": line}, status_code=status)
