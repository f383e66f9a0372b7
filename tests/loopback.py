"""Web servers on loopback whose answers a function gives."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import TypeVar

Server = TypeVar("Server", bound=HTTPServer)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Run a server until the body ends."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Quiet(BaseHTTPRequestHandler):
    """Answers every request by its method `answer`, and prints nothing."""

    protocol_version = "HTTP/1.1"
    body = b""

    def answer(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.answer()

    do_POST = do_PATCH = do_PUT = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass

    def send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | dict(headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def answering(answer: Callable[[Quiet], tuple[int, bytes, Mapping[str, str]]]) -> Iterator[int]:
    """Answer requests by a function of a request that gives status, body and headers; yields the port."""

    class Handler(Quiet):
        def answer(self) -> None:
            self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send(*answer(self))

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield server.server_address[1]
