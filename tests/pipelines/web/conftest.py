"""A scripted web server on loopback, and clients that may reach it."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from loopback import Quiet, running

from pipelines.settings import HttpConfig
from pipelines.web.client import Client
from schemas.lake import Folder

ORIGIN_FILES = ("/robots.txt", "/ai.txt", "/.well-known/tdmrep.json")
Script = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Web:
    """A server whose every path is a function; other paths are 404. `asked` has (path, headers) in order."""

    port: int
    scripts: dict[str, Script]
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)  # a connection, by the server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked if path not in ORIGIN_FILES]


@pytest.fixture
def web() -> Iterator[Web]:
    class Handler(Quiet):
        def answer(self) -> None:
            state.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            script = state.scripts.get(self.path)
            try:
                script(self) if script else send(self, 404)
            except OSError:
                self.close_connection = True

    class Server(ThreadingHTTPServer):
        def shutdown_request(self, request: Any) -> None:
            super().shutdown_request(request)
            state.ended.set()

    with running(Server(("127.0.0.1", 0), Handler)) as server:
        server.daemon_threads = True
        state = Web(server.server_address[1], {})
        yield state


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    """Answer with a status, a body and headers (`content_type` is Content-Type)."""
    handler.send_response(status)
    for name, value in {"content_length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@pytest.fixture
def reply() -> Callable[..., Script]:
    """`reply(status, body, header_name=value)`: the same answer every time."""

    def make(status: int, body: bytes = b"", **headers: str) -> Script:
        return lambda handler: send(handler, status, body, **headers)

    return make


@pytest.fixture
def replies() -> Callable[..., Script]:
    """`replies(script, script, ...)`: one after the other; the last one again and again."""

    def make(*scripts: Script) -> Script:
        left = list(scripts)

        def script(handler: BaseHTTPRequestHandler) -> None:
            answer = left.pop(0) if len(left) > 1 else left[0]
            answer(handler)

        return script

    return make


@pytest.fixture
def client_of(tmp_path: Path, web: Web) -> Iterator[Callable[..., Client]]:
    """`client_of(**settings)`: a quick client over this test's store that may reach the server."""
    made: list[Client] = []

    def make(**settings: Any) -> Client:
        quick: dict[str, Any] = {
            "allow_hosts": (f"127.0.0.1:{web.port}",),
            "requests_per_second": 1000.0,
            "backoff_s": 0.01,
            "attempts": 3,
        }
        injected = {name: settings.pop(name) for name in ("clock", "sleep") if name in settings}
        made.append(Client(HttpConfig(**(quick | settings)), Folder(str(tmp_path / "raw")), **injected))
        return made[-1]

    yield make
    for client in made:
        client.flush()
