"""robots.txt over real sockets (RFC 9309)."""

from functools import partial

import pytest

from pipelines.web import origin_files
from pipelines.web.requests import FetchFailed, Kind
from schemas.failures import Reason

OTHERS = ("/ai.txt", "/.well-known/tdmrep.json")
RULES = b"""\
User-agent: *
Disallow: /

User-agent: multilink
Disallow: /private/
Allow: /private/open
Disallow: /*.php$
Disallow: /*/secret
"""


def outcome(client, url, kind=Kind.PAGE) -> str:
    try:
        return str(client.get(url, source="s", kind=kind).entry.status)
    except FetchFailed as problem:
        return str(problem.reason)


@pytest.fixture
def site(web, reply):
    for path in ("/a", "/private/x", "/private/open/x", "/x.php", "/x.php5", "/deep/secret/x"):
        web.scripts[path] = reply(200, b"page")
    return web


TWICE = b"User-agent: multilink\nDisallow: /a\nUser-agent: x\nAllow: /\nUser-agent: multilink/1\nDisallow: /x\n"
DECIDED = [  # status of the file, its rules, path, whether it may be asked for
    *((200, RULES, path, may) for path, may in (
        ("/a", True), ("/private/x", False), ("/private/open/x", True), ("/x.php", False), ("/x.php5", True),
        ("/deep/secret/x", False),
    )),
    *((status, b"", "/a", True) for status in (400, 401, 403, 404, 410)),
    # a group is ours by its whole token, and one of another releases nothing
    *((200, f"User-agent: *\nAllow: /\n\nUser-agent: {agents}\nSitemap: /x\nDisallow: /\n".encode(), "/a", False)
      for agents in (
        "multilink", "MultiLink/0.1", "multilink/0.1 (+http://a.example)", "googlebot\nUser-agent: multilink/2",
    )),
    *((200, f"User-agent: *\nAllow: /\n\nUser-agent: {agent}\nDisallow: /\n".encode(), "/a", True) for agent in (
        "multi", "link", "multilink2", "multilink-news", "googlebot",
    )),
    *((200, f"User-agent: *\nDisallow: /\n\nUser-agent: {agent}\nAllow: /\n".encode(), "/a", False) for agent in (
        "multi", "link", "multilinks", "m",
    )),
    *((200, TWICE, path, may) for path, may in (("/a", False), ("/x.php", False), ("/deep/secret/x", True))),
]  # fmt: skip


@pytest.mark.parametrize(("status", "rules", "path", "may"), DECIDED)
def test_the_longest_match_of_our_group_decides(site, reply, client_of, *, status, rules, path, may) -> None:
    site.scripts["/robots.txt"] = reply(status, rules)
    assert outcome(client_of(), f"{site.url}{path}") == ("200" if may else "robots-denied")
    assert (path in site.paths) == may


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_unreadable_file_allows_nothing_and_is_not_asked_for_each_page(site, reply, client_of, status) -> None:
    site.scripts["/robots.txt"] = reply(status)
    client = client_of(attempts=2)
    for path in ("/a", "/x.php", "/private/x"):
        assert outcome(client, f"{site.url}{path}") == "http-error"
    assert [path for path, _ in site.asked if path not in OTHERS] == ["/robots.txt", "/robots.txt"]
    site.scripts["/robots.txt"] = reply(404)
    assert outcome(client_of(), f"{site.url}/a") == "200"  # nothing of it was remembered


def test_a_host_that_cannot_be_reached_fails_as_such(client_of) -> None:
    client = client_of(allow_hosts=("127.0.0.1:9",), attempts=1)
    assert outcome(client, "http://127.0.0.1:9/a") == Reason.CONNECTION_FAILED
    assert outcome(client_of(allow_hosts=()), "http://127.0.0.1:9/a") == Reason.ADDRESS_REFUSED


def test_the_file_is_asked_for_once_a_day(site, reply, client_of) -> None:
    site.scripts["/robots.txt"] = reply(200, RULES)
    for now in (1_000_000.0, 1_086_000.0, 1_086_401.0):
        client = client_of(clock=partial(float, now))
        assert outcome(client, f"{site.url}/private/x") == "robots-denied"
        client.flush()
    assert [path for path, _ in site.asked if path not in OTHERS] == ["/robots.txt", "/robots.txt"]


def test_files_of_many_origins_are_not_all_kept_parsed(site, reply, client_of, monkeypatch) -> None:
    monkeypatch.setattr(origin_files, "_MOST_ORIGINS", 3)
    site.scripts["/robots.txt"] = reply(200, RULES)
    names = [f"host{number}.test" for number in range(8)]
    where = f"127.0.0.1:{site.port}"
    client = client_of(connect_to=tuple(f"{name}={where}" for name in names), allow_hosts=(where,))
    for _ in range(2):  # the second time from the store
        assert {outcome(client, f"http://{name}/private/x") for name in names} == {"robots-denied"}
    assert [path for path, _ in site.asked].count("/robots.txt") == len(names)
    assert len(client._files._robots._cached) == 3


def test_it_need_not_be_asked(site, reply, client_of) -> None:
    site.scripts["/robots.txt"] = reply(200, b"User-agent: *\nDisallow: /\n")
    assert outcome(client_of(), f"{site.url}/a", Kind.API) == "200"
    assert outcome(client_of(obey_robots=False), f"{site.url}/x.php") == "200"
    assert "/robots.txt" not in [path for path, _ in site.asked]


def test_a_crawl_delay_is_kept_and_one_without_end_is_a_refusal(site, reply, client_of) -> None:
    site.scripts["/robots.txt"] = reply(200, b"User-agent: *\nCrawl-delay: 5\n")
    slept = []
    client = client_of(clock=lambda: 1000.0, sleep=slept.append)
    for path in ("/a", "/x.php", "/x.php5"):
        outcome(client, f"{site.url}{path}")
    assert [round(seconds) for seconds in slept] == [0, 15, 20]  # ai.txt and tdmrep.json were two requests more
    site.scripts["/robots.txt"] = reply(200, b"User-agent: *\nCrawl-delay: 500\n")
    assert outcome(client_of(clock=lambda: 1e9), f"{site.url}/private/x") == "robots-denied"


def test_a_redirect_is_asked_about_where_it_leads(site, reply, client_of) -> None:
    site.scripts["/robots.txt"] = reply(200, RULES)
    site.scripts["/b"] = reply(302, location="/private/x")
    assert outcome(client_of(), f"{site.url}/b") == "robots-denied"
    assert "/private/x" not in site.paths
