"""Who may come in, what a write must carry, and how much a request may take."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import httpx
import pytest
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI
from running_newsroom import Server, served, until
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from newsroom.pages import limits
from newsroom.pages.access import session
from newsroom.pages.limits import HEADERS, Limits, Work
from newsroom.pages.state import PagesSettings
from schemas.messages import UsageError

TOKEN = "a-token-of-24-characters"


@pytest.fixture(scope="module")
def server(plain: PagesSettings) -> Iterator[Server]:
    with served(plain) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as opened:
        yield opened


@pytest.mark.parametrize(
    "changes", [{"host": "0.0.0.0"}, {"token": "short"}, {"token": TOKEN, "user_header": "X-User"}]
)
def test_pages_that_anyone_could_enter_do_not_start(plain: PagesSettings, changes: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="--token"):
        replace(plain, **changes)  # type: ignore[arg-type]
    assert replace(plain, host="0.0.0.0", token=TOKEN) and replace(plain, host="::1").is_local


def test_another_sites_name_for_this_machine_is_refused(server: Server, client: httpx.Client) -> None:
    port = server.url.rpartition(":")[2]
    here = dict.fromkeys((f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "localhost"), 200)
    others = dict.fromkeys((f"evil.example:{port}", "evil.example", f"127.0.0.1.evil.example:{port}", ""), 421)
    answers = {host: client.get("/health", headers={"Host": host}).status_code for host in (*here, *others)}
    assert answers == here | others


def test_every_answer_forbids_scripts_of_others(client: httpx.Client) -> None:
    for path in ("/", "/nowhere", "/static/style.css", "/health", "/articles/none"):
        answer = client.get(path)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS, path
        assert "unsafe" not in answer.headers["content-security-policy"]


def test_a_write_that_another_site_causes_is_refused(server: Server, client: httpx.Client) -> None:
    """By what browsers say, as in Go's net/http CrossOriginProtection; what says nothing is no browser."""
    right, other = {"headline": "A flood"}, server.url.replace("127.0.0.1", "127.0.0.2")
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": server.url},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": other},
    ):
        for path in ("/articles", "/uploads", "/documents", "/decisions", "/decisions/undo"):
            assert client.post(path, data=right, headers=headers).status_code == 403, (path, headers)
    for headers in ({}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": server.url}):
        answer = client.post("/articles", data=right, headers=headers)
        assert answer.status_code == 200 and "A flood" in answer.text
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200  # a link from elsewhere


def test_a_token_is_asked_for_once(plain: PagesSettings) -> None:
    with served(replace(plain, token=TOKEN)) as server, server.client() as client:
        assert client.get("/").status_code == 401  # a program
        page = client.get("/?n=24", headers={"Accept": "text/html"})
        assert page.url.path == "/enter" and page.status_code == 200
        form = {"then": "/?n=24"}
        assert client.post("/enter", data={**form, "token": "wrong"}).status_code == 403
        assert client.get("/").status_code == 401
        entered = client.post("/enter", data={**form, "token": TOKEN})
        assert entered.status_code == 200 and entered.url.raw_path == b"/?n=24"
        cookie = next(each for each in client.cookies.jar if each.name == "multilink-session")
        assert TOKEN not in str(cookie.value) and cookie.has_nonstandard_attr("HttpOnly")
        assert client.get("/").status_code == 200
        away = client.post("/enter", data={**form, "then": "//evil.example/", "token": TOKEN}, follow_redirects=False)
        assert away.headers["location"] == "/"
    with served(replace(plain, token=TOKEN)) as server, server.client() as client:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert client.get("/", headers=bearer).status_code == 200
        assert client.get("/", headers={"Authorization": f"Bearer {TOKEN}x"}).status_code == 401
        written = client.post("/articles", data={"headline": "x"}, headers=bearer, follow_redirects=False)
        assert written.status_code == 303


def test_a_session_ends_and_belongs_to_its_token() -> None:
    seal = session(b"secret", TOKEN)
    made = seal.sealed(now=1)
    assert seal.opened(made, now=60) == b"" and seal.opened(made, now=13 * 3600) is None
    for other in (session(b"secret", TOKEN + "x"), session(b"other", TOKEN), replace(seal, purpose="ranking")):
        assert other.opened(made, now=60) is None
    assert seal.opened(made[:-4] + "AAAA", now=60) is None and seal.opened("", now=60) is None


def test_a_body_is_bounded(client: httpx.Client) -> None:
    assert client.post("/articles", data={"body": "x" * 3_000_000}).status_code == 413
    parts = iter([b"body=", *[b"x" * 500_000] * 5])
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post("/articles", content=parts, headers=kind).status_code == 400  # of a length not stated
    assert client.post("/articles", data={"body": "x" * 1000}).status_code == 200


def test_a_body_that_does_not_come_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_S", 0.3)
    port = int(server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as late:
        kind = b"Content-Type: application/x-www-form-urlencoded"
        late.sendall(b"POST /articles HTTP/1.1\r\nHost: localhost\r\n" + kind + b"\r\nContent-Length: 9\r\n\r\nbody=")
        assert late.recv(1000).startswith(b"HTTP/1.1 503")


@pytest.mark.parametrize(
    ("limit", "most", "clients", "late"),
    [("MAX_REQUESTS", 3, "abcde", (3, 4)), ("MAX_OF_CLIENT", 2, "aaab", (2,))],
)
def test_requests_beyond_what_may_wait_are_refused(
    limit: str, most: int, clients: str, late: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all clients together, and of one: whoever else comes is answered."""
    monkeypatch.setattr(limits, limit, most)

    async def scene() -> list[httpx.Response]:
        done = asyncio.Event()

        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            await done.wait()
            await Response("ok")(scope, receive, send)

        transport = httpx.ASGITransport(Limits(slow, user_header="x-user"))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asked = [asyncio.create_task(client.get("/", headers={"x-user": name})) for name in clients]
            await until(lambda: sum(each.done() for each in asked) >= len(late))
            done.set()
            return await asyncio.gather(*asked)

    answers = asyncio.run(scene())
    statuses = [each.status_code for each in answers]
    assert statuses == [503 if number in late else 200 for number in range(len(clients))]
    assert all({"retry-after", "x-content-type-options"} <= answers[number].headers.keys() for number in late)


def test_threads_that_hang_are_replaced_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread cannot be ended. Pages that hang give their places to others; what waited for a place does not begin."""
    monkeypatch.setattr(limits, "ANSWER_S", 0.5)
    monkeypatch.setattr(limits, "MAX_SPARE", 6)
    monkeypatch.setattr(limits, "MAX_OF_CLIENT", 100)
    end, begun = threading.Event(), [0]
    app, lock = FastAPI(), threading.Lock()

    @app.get("/hangs")
    def hangs() -> str:
        with lock:
            begun[0] += 1
        end.wait(60)
        return "late"

    @app.get("/page")
    def page() -> str:
        return "made"

    async def scene() -> None:
        places = current_default_thread_limiter()
        places.total_tokens = 4
        work = Work()
        transport = httpx.ASGITransport(Limits(app, work))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for late in (4, 6, 6):
                answers = await asyncio.gather(*(client.get("/hangs") for _ in range(20)))
                assert {each.status_code for each in answers} == {503}
                await until(lambda late=late: work.requests[0].total() <= begun[0] and work.late >= late)
                assert (await client.get("/page")).status_code == (503 if begun[0] == 10 else 200)
            assert begun == [10] and work.late == 6
            end.set()
            await until(lambda: not work.requests[0].total())
            assert (work.late, places.total_tokens) == (0, 4)
            assert (await client.get("/page")).status_code == 200

    asyncio.run(scene())


@pytest.mark.parametrize(("late", "status"), [(limits.MAX_SPARE - 1, 200), (limits.MAX_SPARE, 503)])
def test_pages_of_which_every_spare_thread_hangs_are_not_healthy(late: int, status: int) -> None:
    assert asyncio.run(Work(late=late).health()).status_code == status


@pytest.mark.parametrize("sent", [b"body=", b""])
def test_slow_senders_delay_nobody(sent: bytes, plain: PagesSettings) -> None:
    with served(replace(plain, host="127.0.0.1", token=TOKEN)) as server, ExitStack() as open_ones:
        port = int(server.url.rpartition(":")[2])
        for number in range(200):
            path = "/enter" if number % 2 else "/articles"
            slow = open_ones.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
            slow.sendall(head.encode() + sent)
        with server.client() as client:
            assert client.get("/health").status_code == 200
            assert client.get("/articles/none", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 404


def test_a_body_of_a_stranger_is_not_read(plain: PagesSettings) -> None:
    with served(replace(plain, token=TOKEN)) as server, server.client() as client:
        assert client.post("/articles", data={"body": "x" * 100_000}).status_code == 401
        assert client.post("/enter", data={"token": "x" * 100_000}).status_code == 413


def test_an_error_is_one_line_in_the_visitors_language(server: Server) -> None:
    with server.client(headers={"Accept-Language": "fr-CH, de;q=0.5"}) as client:
        answer = client.get("/articles/none")
        assert answer.status_code == 404 and '<html lang="fr">' in answer.text and "Introuvable" in answer.text
        assert "Traceback" not in answer.text
        assert '<html lang="de">' in client.get("/articles/none?ui=de").text
        assert '<html lang="de">' in client.get("/articles/none").text  # kept
        assert client.get("/articles/none", headers={"HX-Request": "true"}).headers["hx-retarget"] == "main"
