"""The recorded web: serves the recording over HTTP, as Reddit and Imgur answered.

`python tests/replay/server.py --recording DIR [--host 127.0.0.1] [--port 0] [--until-eof]` prints
`serving http://HOST:PORT` and runs until SIGTERM. Tests use `with RecordedWeb(recording) as web:`.

Here: connections, choosing the virtual host by the `Host` header, writing replies, and the log of requests. What
each host says is in `reddit_host.py`, `imgur_host.py` and `image_host.py`. A request to the server's address
itself (a client whose base address was configured) is routed by its path, and `/__requests` lists
what was asked. Standard library only.
"""

import argparse
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl

from image_host import ImageHost
from imgur_host import ImgurApi, ImgurPages
from news_host import HOST as NEWS_HOST
from news_host import NewsHost
from opt_outs import OPTED_OUT, origin_file
from reddit_host import RedditHost
from replies import ORIGIN_FILES, Reply, Request, json_reply, text_reply

LOOPBACK = "127.0.0.1"
IDLE_TIMEOUT_S = 60
REDDIT_HOSTS = ("www.reddit.com", "oauth.reddit.com", "reddit.com")


class RecordedWeb:
    """The server, running in a thread while the context is open.

    Attributes:
        host: The address it listens on.
        port: The port there.
        requests: (host, path, status) of every request answered, in the order of answering.
    """

    def __init__(self, recording: Path, *, host: str = LOOPBACK, port: int = 0, latency_s: float = 0.0) -> None:
        self.requests: list[tuple[str, str, int]] = []
        self.host = host
        self.latency_s = latency_s
        self._closing = threading.Event()
        images = ImageHost(recording, closing=self._closing)
        pages, api, reddit = ImgurPages(recording), ImgurApi(recording), RedditHost(recording)
        self._hosts: dict[str, Any] = {"imgur.com": pages, "www.imgur.com": pages}
        self._hosts |= {"i.imgur.com": images, "api.imgur.com": api}
        self._hosts |= dict.fromkeys(REDDIT_HOSTS, reddit) | {NEWS_HOST: NewsHost(recording)}
        self._by_path: tuple[tuple[str, Any], ...] = (("/a/", pages), ("/3/", api), ("/", reddit))
        self._images = images
        self._server = _Server((host, port), _Handler)
        self._server.web = self
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The server's own address."""
        return f"http://{self.host}:{self.port}"

    def answer(self, request: Request) -> Reply:
        """The reply of the host that the request names."""
        if self.latency_s:
            time.sleep(self.latency_s)
        host = self._hosts.get(request.host)
        if request.path in ORIGIN_FILES:
            return origin_file(request)
        if request.host in OPTED_OUT:
            return self._images.answer(request)
        if host is not None:
            return host.answer(request)
        if request.host not in (self.host, "localhost"):
            return text_reply(421, f"no recording of {request.host}\n")
        if request.path == "/__requests":
            return json_reply(200, [list(entry) for entry in self.requests])
        if self._images.knows(request.path):
            return self._images.answer(request)
        return next(host for prefix, host in self._by_path if request.path.startswith(prefix)).answer(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    web: RecordedWeb


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_TIMEOUT_S
    server: _Server

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True

    def do_GET(self) -> None:
        self._respond()

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name is the base class's)
        """Nothing: `RecordedWeb.requests` is the log."""

    def _respond(self) -> None:
        request = self._read_request()
        reply = self.server.web.answer(request)
        if request.path != "/__requests":
            self.server.web.requests.append((request.host, request.path, reply.status))
        self._write(reply)

    def _read_request(self) -> Request:
        path, _, query = self.path.partition("?")
        length = int(self.headers.get("Content-Length") or 0)
        return Request(
            method=self.command,
            host=(self.headers.get("Host") or LOOPBACK).partition(":")[0].lower(),
            path=path,
            query=dict(parse_qsl(query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            form=dict(parse_qsl(self.rfile.read(length).decode("utf-8", "replace"))),
        )

    def _write(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.stream is None:
            self.send_header("Content-Length", str(len(reply.body) + reply.promised_extra_bytes))
        if reply.stream is not None or reply.promised_extra_bytes:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(reply.body)
        for piece in reply.stream or ():
            self.wfile.write(piece)


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description="Serve the recorded web.")
    parser.add_argument("--recording", type=Path, required=True)
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--until-eof", action="store_true", help="end when standard input is closed")
    arguments = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if arguments.until_eof:
        threading.Thread(target=lambda: (sys.stdin.buffer.read(), stop.set()), daemon=True).start()
    with RecordedWeb(arguments.recording, host=arguments.host, port=arguments.port) as web:
        print(f"serving {web.url}", flush=True)
        stop.wait()


if __name__ == "__main__":
    main()
