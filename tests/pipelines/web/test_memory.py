"""What is asked for again, and when: the store answers for the rest."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from pipelines.settings import HttpConfig
from pipelines.web.client import Client, process_client
from pipelines.web.requests import FetchFailed, Kind, Response
from schemas.failures import Reason
from schemas.lake import Folder

DAY_S = 86_400.0
Visit = Callable[..., Response]


@pytest.fixture
def visit(client_of: Callable[..., Client]) -> Visit:
    """`visit(url, kind, at=moment, **settings)`: a `get` of a process of its own, as far as the store can tell."""

    def get(
        url: str, kind: Kind = Kind.API, *, at: float = 1e6, max_age_s: float | None = None, **rest: Any
    ) -> Response:
        headers = rest.pop("headers", None)
        client = client_of(clock=partial(float, at), **({"attempts": 1} | rest))
        try:
            response = client.get(url, source="s", kind=kind, headers=headers, max_age_s=max_age_s)
            return Response(response.entry, "s", response.from_store, client.body(response))
        finally:
            client.flush()

    return get


def test_a_second_process_asks_for_nothing(web, reply, visit: Visit) -> None:
    web.scripts["/a"] = reply(200, b"hello")
    first, second = visit(f"{web.url}/a"), visit(f"{web.url}/a#part", at=2e6)
    assert not first.from_store and second.from_store
    assert second.body == b"hello" and second.entry == first.entry
    assert web.paths == ["/a"]


def test_the_same_client_asks_for_nothing_twice(web, reply, client_of) -> None:
    web.scripts["/a"] = reply(200, b"hello")
    client = client_of()
    found = [client.get(f"{web.url}/a", source="s", kind=Kind.IMAGE) for _ in range(3)]
    assert [each.from_store for each in found] == [False, True, True]
    assert {client.body(each) for each in found} == {b"hello"} and web.paths == ["/a"]


# What the first answer is, its reason, and the seconds for which it holds.
FAILURES: dict[str, tuple[Reason, float]] = {
    "404": (Reason.NOT_FOUND, 30 * DAY_S),
    "410": (Reason.NOT_FOUND, 30 * DAY_S),
    "403": (Reason.FORBIDDEN, DAY_S),
    "500": (Reason.HTTP_ERROR, -1.0),  # failed for the moment
    "429": (Reason.HTTP_ERROR, -1.0),
    "418": (Reason.HTTP_ERROR, -1.0),
    "cut": (Reason.TRUNCATED, -1.0),
    "page": (Reason.NOT_AN_IMAGE, DAY_S),
    "nothing": (Reason.NOT_AN_IMAGE, DAY_S),  # as hosts answer in an outage: 200 all the same
    "words": (Reason.NOT_AN_IMAGE, DAY_S),
    "removed": (Reason.REMOVED_IMAGE, 30 * DAY_S),
}


def cut(handler: Any) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhell")
    handler.close_connection = True


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_remembered_for_its_time_and_equal_the_first_time(web, reply, visit: Visit, name: str) -> None:
    reason, holds_s = FAILURES[name]
    others = {
        "cut": cut,
        "page": reply(200, b"<p>", content_type="text/html"),
        "nothing": reply(200, content_type="image/jpeg"),
        "words": reply(200, b'{"error": "over capacity"}', content_type="application/json; charset=utf-8"),
        "removed": reply(302, location="/removed.png"),
    }
    web.scripts["/a"] = others.get(name) or reply(int(name))
    seen = []
    for moment in (1e6, 1e6 + holds_s - 1) if holds_s > 0 else (1e6,):
        with pytest.raises(FetchFailed) as caught:
            visit(f"{web.url}/a", Kind.IMAGE, at=moment)
        seen.append(caught.value.args)
    assert seen[0] == seen[-1] and seen[0][0] is reason
    assert web.paths == ["/a"]
    web.scripts["/a"] = reply(200, b"now")
    assert visit(f"{web.url}/a", Kind.IMAGE, at=1e6 + holds_s + 1).body == b"now"


@pytest.mark.parametrize(("before", "is_asked"), [(0.0, False), (1e6, False), (1e6 + 1, True)])
def test_what_a_host_refused_is_asked_for_again_where_a_person_wants_it(
    web, reply, visit: Visit, *, before: float, is_asked: bool
) -> None:
    web.scripts["/a"] = reply(404)
    with pytest.raises(FetchFailed, match="not-found"):
        visit(f"{web.url}/a", Kind.IMAGE)
    web.scripts["/a"] = reply(200, b"now")
    try:
        found = visit(f"{web.url}/a", Kind.IMAGE, at=1e6 + 2, ask_again_before=before).body == b"now"
    except FetchFailed:
        found = False
    assert found is is_asked


def test_a_host_that_could_not_be_reached_is_asked_again(web, reply, visit: Visit) -> None:
    web.scripts["/a"] = reply(200, b"now")
    closed, address = "127.0.0.1:9", f"127.0.0.1:{web.port}"
    with pytest.raises(FetchFailed, match="connection-failed"):
        visit("http://a.test/a", connect_to=(f"a.test={closed}",), allow_hosts=(closed,))
    assert visit("http://a.test/a", connect_to=(f"a.test={address}",), allow_hosts=(address,)).body == b"now"


def test_wrong_credentials_are_not_remembered_and_none_are_stored(web, reply, visit: Visit, tmp_path) -> None:
    web.scripts["/a"] = reply(403)
    with pytest.raises(FetchFailed, match=Reason.FORBIDDEN):
        visit(f"{web.url}/a", headers={"Authorization": "wrong-key"})
    web.scripts["/a"] = reply(200, b"now", set_cookie="session=secret-key")
    visit(f"{web.url}/a", headers={"Authorization": "right-key"})
    stored = [path.read_bytes() for path in (tmp_path / "raw").rglob("*") if path.is_file()]
    assert stored and not any(b"-key" in content for content in stored)


def test_a_refused_address_is_asked_again_once_it_is_allowed(web, reply, visit: Visit) -> None:
    web.scripts["/a"] = reply(200, b"ok")
    with pytest.raises(FetchFailed, match="address-refused"):
        visit(f"{web.url}/a", allow_hosts=())
    assert visit(f"{web.url}/a").body == b"ok"


def test_too_large_holds_for_its_limit_alone(web, reply, visit: Visit) -> None:
    web.scripts["/a"] = reply(200, b"0" * 200)
    for _ in range(2):
        with pytest.raises(FetchFailed, match="too-large"):
            visit(f"{web.url}/a", max_bytes=100)
    assert web.paths == ["/a"]
    assert visit(f"{web.url}/a", max_bytes=300).entry.payload_bytes == 200


def test_images_stay_and_pages_grow_old(web, reply, replies, visit: Visit) -> None:
    for path in ("/image", "/page", "/listing"):
        web.scripts[path] = replies(reply(200, b"old"), reply(200, b"new"))
    for at, page, listing in (
        (1e6, b"old", b"old"),
        (1e6 + 29 * DAY_S, b"old", b"new"),
        (1e6 + 31 * DAY_S, b"new", b"new"),
    ):
        assert visit(f"{web.url}/image", Kind.IMAGE, at=at).body == b"old"
        assert visit(f"{web.url}/page", Kind.PAGE, at=at, obey_robots=False).body == page
        assert visit(f"{web.url}/listing", at=at, max_age_s=DAY_S).body == listing


@pytest.mark.parametrize(
    ("sent", "asked"),
    [
        ({"etag": '"1"'}, {"if-none-match": '"1"'}),
        ({"last_modified": "Thu, 01 Jan 2026 00:00:00 GMT"}, {"if-modified-since": "Thu, 01 Jan 2026 00:00:00 GMT"}),
    ],
)
def test_what_is_old_is_asked_about_and_renewed(web, reply, visit: Visit, sent: dict, asked: dict) -> None:
    web.scripts["/a"] = reply(200, b"page", **sent)
    first = visit(f"{web.url}/a")
    web.scripts["/a"] = reply(304)
    later = visit(f"{web.url}/a", at=2e6, max_age_s=60.0)
    assert later.from_store and later.body == b"page" and later.fetched_at > first.fetched_at
    assert asked.items() <= web.asked[-1][1].items()
    assert visit(f"{web.url}/a", at=2e6 + 59, max_age_s=60.0).entry == later.entry
    assert web.paths == ["/a", "/a"]


def test_kinds_and_sources_are_kept_apart(web, reply, client_of) -> None:
    web.scripts["/a"] = reply(200, b"<p>", content_type="text/html")
    client = client_of()
    assert client.get(f"{web.url}/a", source="s", kind=Kind.PAGE).entry.status == 200
    with pytest.raises(FetchFailed, match="not-an-image"):
        client.get(f"{web.url}/a", source="s", kind=Kind.IMAGE)
    assert not client.get(f"{web.url}/a", source="t", kind=Kind.PAGE).from_store


def test_a_process_has_one_client(tmp_path) -> None:
    config, raw = HttpConfig(), Folder(str(tmp_path))
    assert process_client(config, raw) is process_client(HttpConfig(), Folder(str(tmp_path)))


@pytest.mark.parametrize("status", [404, 503])
def test_a_page_that_is_gone_later_is_gone_and_one_in_trouble_is_as_it_was(
    web, reply, replies, visit: Visit, status: int
) -> None:
    web.scripts["/page"] = replies(reply(200, b"old"), reply(status))
    visit(f"{web.url}/page", Kind.PAGE, obey_robots=False)
    gone = pytest.raises(FetchFailed, match="not-found") if status == 404 else nullcontext()
    with gone:
        assert visit(f"{web.url}/page", Kind.PAGE, obey_robots=False, at=1e6 + 31 * DAY_S).body == b"old"
