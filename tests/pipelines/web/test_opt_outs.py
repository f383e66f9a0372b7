"""What answers and whole hosts say against their use is honoured, each for its own reason, over real sockets."""

import gzip
import json
from datetime import UTC, datetime
from functools import partial

import pytest

from pipelines.raw import RawStore, request_key
from pipelines.settings import HttpConfig
from pipelines.web.opt_outs import OptOut, read_opt_outs, refusal
from pipelines.web.origin_files import parse_robots, parse_tdm
from pipelines.web.requests import FetchFailed, Kind
from schemas.failures import FILTERED, Reason
from schemas.lake import Folder

PICTURE = b"\xff\xd8\xff\xe0 a picture"
PAGE = "<html><head><title>A</title>{}</head><body>text</body></html>"


def outcome(client, url, kind=Kind.IMAGE) -> str:
    try:
        return str(client.get(url, source="web", kind=kind).entry.status)
    except FetchFailed as problem:
        return str(problem.reason)


NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def said(headers=None, page="") -> list[str]:
    return [str(each) for each in read_opt_outs(headers or {}, page.encode(), product="multilink", now=NOW)]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("noai", "noai"),
        ("noimageai, NoAI", "noai, noimageai"),
        ("nofollow, noindex", "noindex"),
        ("noimageindex", "noimageindex"),
        ("none", "none"),
        ("multilink: noai", "noai"),
        ("MultiLink: nofollow, noindex", "noindex"),
        ("googlebot: noindex\nnoai", "noai"),
        ("unavailable_after: 25 Jun 2010 15:00:00 PST, noindex", "noindex, unavailable_after"),
        ("unavailable_after: Wed, 03 Dec 2099 13:09:53 GMT, noai", "noai"),
        ("noai, unavailable_after: Wed, 03 Dec 2099 13:09:53 GMT", "noai"),
        ("unavailable_after: Fri, 25 Jun 2010 15:00:00 GMT", "unavailable_after"),
        ("nofollow, Unavailable_After:Friday, 25-Jun-10 15:00:00 GMT, noarchive", "unavailable_after"),
        ("unavailable_after: Fri Jun 25 15:00:00 2010", "unavailable_after"),
        ("unavailable_after: 2010-06-25T15:00:00+00:00", "unavailable_after"),
        ("unavailable_after: 2010-06-25", "unavailable_after"),
        ("unavailable_after: 25 Aug 2007 15:00:00 EST", "unavailable_after"),
        ("unavailable_after: 25-Aug-2007 15:00:00 EST", "unavailable_after"),
        ("multilink: unavailable_after: 2010-06-25", "unavailable_after"),
        ("max-snippet:20, noai", "noai"),
        ("*: noai", "noai"),
        ("multilink/0.1: noai", "noai"),
        ("Multilink/7 (x): noai", "noai"),
        ("googlebot: noindex, noai\n*: noimageai", "noimageai"),
    ],
)
def test_a_header_says_it_to_everyone_or_to_us(value, words) -> None:
    assert said({"x-robots-tag": value}) == [f"robots-tag X-Robots-Tag: {words}"]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "all",
        "nofollow, noarchive",
        "googlebot: noindex, noai",
        "noaix",
        "a: b: noai",
        "multi: noai",
        "multilink2: noai",
        "multilink-news: noai",
        "unavailable_after: Wed, 03 Dec 2099 13:09:53 GMT",
        "unavailable_after: 2099-12-03",
        "unavailable_after: soon",
        "googlebot: unavailable_after: 2010-06-25",
    ],
)
def test_other_words_and_words_to_others_say_nothing(value) -> None:
    assert said({"x-robots-tag": value}) == []


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('<meta name="robots" content="noai, noimageai">', ["robots-meta its meta element has noai, noimageai"]),
        ("<META CONTENT='NOINDEX' NAME='Robots'/>", ["robots-meta its meta element has noindex"]),
        ('<meta name="multilink" content="noindex">', ["robots-meta its meta element has noindex"]),
        ('<meta name="googlebot" content="noindex">', []),
        ('<!-- <meta name="robots" content="noindex"> -->', []),
        ("<meta name=robots content=noai>", ["robots-meta its meta element has noai"]),
        ('<meta http-equiv="X-Robots-Tag" content="noai">', ["robots-meta its meta element has noai"]),
        ('<meta http-equiv="x-robots-tag" content="googlebot: noai">', []),
        (
            '<meta name="robots" content="unavailable_after: 2010-06-25">',
            ["robots-meta its meta element has unavailable_after"],
        ),
        ('<meta http-equiv="tdm-reservation" content="1">', ["tdm-reserved its meta element has tdm-reservation 1"]),
        ('<meta http-equiv="Content-Usage" content="train-ai=n">', ["usage-denied content-usage: train-ai=n"]),
        ('<meta name="content-signal" content="ai-train=no">', ["usage-denied content-signal: ai-train=no"]),
        (
            '<meta name="tdm-reservation" content="1"><meta name="tdm-policy" content="https://a.example/p.json">',
            ["tdm-reserved its meta element has tdm-reservation 1, policy https://a.example/p.json"],
        ),
    ],
)
def test_a_page_says_it_in_its_head(head, expected) -> None:
    assert said(page=PAGE.format(head)) == expected


def test_a_page_counts_before_its_header() -> None:
    reserved = {"tdm-reservation": "1", "tdm-policy": "https://a.example/p"}
    assert said(reserved) == ["tdm-reserved its header has tdm-reservation 1, policy https://a.example/p"]
    assert said(reserved, PAGE.format('<meta name="tdm-reservation" content="0">')) == []
    assert said({"tdm-reservation": "0"}, PAGE.format('<meta name="tdm-reservation" content="1">'))[0].startswith("tdm")
    values = [bool(said({"tdm-reservation": value})) for value in ("2", "false", " True ")]
    assert values == [False, False, True]


@pytest.mark.parametrize(
    ("name", "value", "is_denied"),
    [
        ("content-usage", "train-ai=n", True),
        ("content-usage", "search=y, train-ai=n;exp=1", True),
        ("content-usage", "Train-AI=?0", True),
        ("content-usage", "bots=n", True),
        ("content-usage", "train-ai=y\ntrain-ai=n", True),
        ("content-usage", "train-ai=y, search=n", False),
        ("content-usage", "ai-train=no", False),
        ("content-usage", "", False),
        ("content-signal", "search=yes,ai-train=no", True),
        ("content-signal", "ai-train=yes, ai-input=no", False),
        ("content-signal", "train-ai=n", False),
    ],
)
def test_preferences_on_training(name, value, is_denied) -> None:
    shown = " ".join(value.split())
    assert said({name: value}) == ([f"usage-denied {name}: {shown}"] if is_denied else [])


def test_pages_of_others_are_judged_by_the_same_function() -> None:
    page = PAGE.format('<meta name="robots" content="noai">').encode()
    assert refusal({}, page, HttpConfig(), now=NOW) == OptOut(Reason.ROBOTS_META, "its meta element has noai")
    assert refusal({}, page, HttpConfig(obey_robots_tags=False), now=NOW) is None
    assert refusal({"x-robots-tag": "other: noai"}, b"", HttpConfig(user_agent="other/2"), now=NOW) is not None


def test_a_hostile_page_is_read_quickly() -> None:
    for piece in (b"<!--", b"<meta ", b"<meta name=", b"<meta a='", b"<"):
        assert read_opt_outs({}, piece * 200_000, product="multilink", now=NOW) == []


@pytest.mark.parametrize(
    ("headers", "reason", "setting"),
    [
        ({"x_robots_tag": "noai"}, "robots-tag", "obey_robots_tags"),
        ({"tdm_reservation": "1"}, "tdm-reserved", "obey_tdm"),
        ({"content_usage": "train-ai=n"}, "usage-denied", "obey_content_usage"),
        ({"content_signal": "ai-train=no"}, "usage-denied", "obey_content_usage"),
        ({"x_robots_tag": "unavailable_after: Fri, 25 Jun 2010 15:00:00 GMT"}, "robots-tag", "obey_robots_tags"),
    ],
)
def test_an_image_says_no_and_is_not_kept(web, reply, client_of, tmp_path, headers, reason, setting) -> None:
    web.scripts["/a.jpg"] = reply(200, PICTURE, content_type="image/jpeg", **headers)
    client = client_of()
    assert outcome(client, f"{web.url}/a.jpg") == reason
    client.flush()
    assert outcome(client_of(), f"{web.url}/a.jpg") == reason
    assert web.paths == ["/a.jpg"]  # it was remembered
    assert PICTURE not in b"".join(gzip.decompress(path.read_bytes()) for path in tmp_path.rglob("*.warc.gz"))
    assert Reason(reason) in FILTERED
    free = client_of(**{setting: False})
    assert outcome(free, f"{web.url}/a.jpg") == "200"  # the setting is part of what is remembered
    free.flush()
    assert outcome(client_of(), f"{web.url}/a.jpg") == reason  # and what was kept without it is refused with it
    assert outcome(client_of(**{setting: False}), f"{web.url}/a.jpg") == "200"
    assert web.paths == ["/a.jpg"] * 2


def test_words_to_another_crawler_on_a_line_of_their_own(web, client_of) -> None:
    def script(handler) -> None:
        handler.send_response(200)
        for value in ("googlebot: noindex", "nofollow"):
            handler.send_header("X-Robots-Tag", value)
        handler.send_header("Content-Length", str(len(PICTURE)))
        handler.end_headers()
        handler.wfile.write(PICTURE)

    web.scripts["/a.jpg"] = script
    assert outcome(client_of(), f"{web.url}/a.jpg") == "200"


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ('<meta name="robots" content="noindex">', "robots-meta"),
        ('<meta name="tdm-reservation" content="1">', "tdm-reserved"),
        ('<meta name="description" content="noindex">', "200"),
    ],
)
def test_a_page_says_no(web, reply, client_of, head, reason) -> None:
    web.scripts["/a"] = reply(200, PAGE.format(head).encode(), content_type="text/html; charset=utf-8")
    assert outcome(client_of(), f"{web.url}/a", Kind.PAGE) == reason
    web.scripts["/b"] = reply(200, PAGE.format(head).encode(), content_type="text/plain")
    assert outcome(client_of(), f"{web.url}/b", Kind.PAGE) == "200"


def test_what_an_answer_said_is_kept(web, reply, client_of, tmp_path) -> None:
    web.scripts["/a.jpg"] = reply(200, PICTURE, x_robots_tag="noai", tdm_reservation="1", tdm_policy="/p")
    client = client_of(obey_robots_tags=False, obey_tdm=False)
    assert outcome(client, f"{web.url}/a.jpg") == "200"
    client.flush()
    key = request_key("image", f"{web.url}/a.jpg")
    (found,) = RawStore(Folder(str(tmp_path / "raw"))).find_many("web", [key])
    assert found.opt_outs.splitlines() == [
        "robots-tag X-Robots-Tag: noai", "tdm-reserved its header has tdm-reservation 1, policy /p"
    ]  # fmt: skip
    (segment,) = (tmp_path / "raw" / "web").glob("*.warc.gz")
    assert b"X-Robots-Tag: noai" in gzip.decompress(segment.read_bytes())


AI_TXT = b"User-Agent: *\nDisallow: /\nAllow: *.png\nDisallow: *.jpg\n"


def test_ai_txt_is_read_once_before_anything_else(web, reply, client_of) -> None:
    web.scripts |= {path: reply(200, PICTURE) for path in ("/a.jpg", "/deep/a.png", "/a")}
    web.scripts["/ai.txt"] = reply(200, AI_TXT)
    client = client_of()
    found = {path: outcome(client, f"{web.url}{path}") for path in ("/a.jpg", "/deep/a.png", "/a")}
    assert found == {"/a.jpg": "ai-txt-denied", "/deep/a.png": "200", "/a": "ai-txt-denied"}
    assert web.paths == ["/deep/a.png"]
    assert [path for path, _ in web.asked].count("/ai.txt") == 1
    assert outcome(client_of(obey_ai_txt=False), f"{web.url}/a.jpg") == "200"


RULES = [
    {"location": "/open/", "tdm-reservation": 0},
    {"location": "/pictures/*.jpg$", "tdm-reservation": 1, "tdm-policy": "https://a.example/policy.json"},
    {"location": "/pictures/", "tdm-reservation": 0},
    {"location": "/deep/*/x", "tdm-reservation": "1"},
    {"location": "/half"},
    {"tdm-reservation": 1},
    "no rule",
]


def test_tdmrep_reserves_paths_and_the_first_rule_counts(web, reply, client_of) -> None:
    web.scripts["/.well-known/tdmrep.json"] = reply(200, json.dumps(RULES).encode())
    paths = {
        "/open/a": "200",
        "/pictures/a.jpg": "tdm-reserved",
        "/pictures/a.jpg?x": "200",
        "/pictures/a.png": "200",
        "/deep/er/x1": "tdm-reserved",
        "/deep/x": "200",
        "/half": "200",
        "/else": "200",
    }
    web.scripts |= {path: reply(200, PICTURE) for path in paths}
    client = client_of()
    assert {path: outcome(client, f"{web.url}{path}") for path in paths} == paths
    assert web.paths == [path for path, status in paths.items() if status == "200"]
    with pytest.raises(FetchFailed, match=r"policy https://a\.example/policy\.json"):
        client.get(f"{web.url}/pictures/a.jpg", source="web", kind=Kind.IMAGE)
    assert outcome(client_of(obey_tdm=False), f"{web.url}/pictures/a.jpg") == "200"


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[" * 100_000, b"\xff", b'{"tdm-reservation": 1}', b"1", b"null"])
def test_what_is_no_tdmrep_reserves_nothing(body) -> None:
    assert parse_tdm(body) == ()


@pytest.mark.parametrize("value", ["1", '"1"', "true", '"true"', "false"])
def test_one_object_is_an_array_of_it_and_true_is_meant_for_1(value) -> None:
    (rule,) = parse_tdm(b'{"location": "/a", "tdm-reservation": %s}' % value.encode())
    assert (rule.is_reserved, rule.matches("https://h.test/ab")) == (value != "false", True)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [({"x_robots_tag": "noai"}, "robots-tag"), ({"tdm_reservation": "1"}, "tdm-reserved"),
     ({"content_usage": "train-ai=n"}, "usage-denied"), ({"x_robots_tag": "googlebot: noai"}, "200")],
)  # fmt: skip
def test_a_redirect_says_no(web, reply, client_of, headers, reason) -> None:
    web.scripts["/a.jpg"] = reply(302, location="/b.jpg", **headers)
    web.scripts["/b.jpg"] = reply(200, PICTURE, content_type="image/jpeg")
    assert outcome(client_of(), f"{web.url}/a.jpg") == reason
    assert web.paths == (["/a.jpg", "/b.jpg"] if reason == "200" else ["/a.jpg"])


def test_what_a_redirect_said_is_kept_where_it_is_not_honoured(web, reply, client_of) -> None:
    web.scripts |= {"/a.jpg": reply(302, location="/b.jpg", x_robots_tag="noai"), "/b.jpg": reply(200, PICTURE)}
    client = client_of(obey_robots_tags=False)
    assert outcome(client, f"{web.url}/a.jpg") == "200"
    client.flush()
    assert outcome(client_of(), f"{web.url}/a.jpg") == "robots-tag"


USAGES = b"""\
Content-Signal: ai-train=no  # before any group: for all that no group names
User-agent: *
Allow: /
Disallow: /never/
Content-Usage: train-ai=n
Content-Usage: /ai-ok/ train-ai=y
Content-Usage: /ai-ok/*.jpg$ train-ai=n
Content-Usage: /search/ search=n

User-agent: multilink
Content-Usage: /mine/ search=y, train-ai=n
Content-Usage: /both/ train-ai=y
Content-Usage: /both/ train-ai=n
Content-Signal: search=yes
"""


@pytest.mark.parametrize(
    ("path", "ours", "others"),
    [
        ("/test", "", "content-usage"),
        ("/ai-ok/test", "", "content-signal"),
        ("/ai-ok/test.jpg", "", "content-usage"),
        ("/search/a", "", "content-usage"),
        ("/mine/a", "content-usage", "content-usage"),
        ("/both/a", "content-usage", "content-usage"),
    ],
)
def test_preferences_of_robots_txt_by_the_longest_path_of_the_group(path, ours, others) -> None:
    assert parse_robots(USAGES, product="multilink").denied(f"https://h.test{path}") == ours
    assert parse_robots(USAGES, product="other").denied(f"https://h.test{path}") == others


def test_preferences_of_robots_txt_are_asked_before_the_picture(web, reply, client_of) -> None:
    web.scripts["/robots.txt"] = reply(200, b"User-agent: *\nContent-Signal: search=yes, ai-train=no\nAllow: /\n")
    web.scripts["/a.jpg"] = reply(200, PICTURE)
    assert outcome(client_of(), f"{web.url}/a.jpg") == "usage-denied"
    assert web.paths == []
    assert outcome(client_of(obey_content_usage=False), f"{web.url}/a.jpg") == "200"


@pytest.mark.parametrize(
    ("location", "path", "expected"),
    [
        ("/", "/a", True),
        ("/a*b*c", "/axbxcx", True),
        ("/a*b$", "/ab/ab", True),
        ("/a*b$", "/abc", False),
        ("/a$", "/a", True),
        ("/a$", "/ab", False),
        ("/ab*b$", "/ab", False),
        ("*.jpg", "/x/y.jpg?z", True),
        ("a", "/ab", True),
        ("/foo-%24", "/foo-$", True),
        ("/%7Ea/", "/~a/b", True),
        ("/A", "/a", False),
        ("/a#b", "/a", False),
        ("/a\nAllow: /a", "/a", False),
    ],
)
def test_patterns_are_those_of_robots_txt(location, path, expected) -> None:
    (rule,) = parse_tdm(json.dumps([{"location": location, "tdm-reservation": 1}]).encode())
    assert rule.matches(f"https://h.test{path}") is expected


def test_a_pattern_of_many_stars_is_matched_quickly() -> None:
    (rule,) = parse_tdm(json.dumps([{"location": "/" + "*a" * 5_000 + "$", "tdm-reservation": 1}]).encode())
    assert not rule.matches("https://h.test/" + "a" * 4_999)
    assert rule.matches("https://h.test/" + "a" * 5_000)


@pytest.mark.parametrize("status", [404, 500, 503])
def test_a_file_that_is_not_there_or_cannot_be_read_says_nothing(web, reply, client_of, status) -> None:
    web.scripts |= {path: reply(status) for path in ("/ai.txt", "/.well-known/tdmrep.json")}
    web.scripts["/a.jpg"] = reply(200, PICTURE)
    client = client_of()
    assert [outcome(client, f"{web.url}/a.jpg"), outcome(client, f"{web.url}/b.jpg")] == ["200", "not-found"]
    assert [path for path, _ in web.asked].count("/ai.txt") == 1


def test_files_of_a_host_are_asked_for_once_a_day_and_kept(web, reply, client_of, tmp_path) -> None:
    web.scripts |= {"/ai.txt": reply(200, AI_TXT), "/.well-known/tdmrep.json": reply(200, json.dumps(RULES).encode())}
    for now in (1_000_000.0, 1_086_000.0, 1_086_401.0):
        client = client_of(clock=partial(float, now))
        assert outcome(client, f"{web.url}/a.jpg") == "ai-txt-denied"
        assert (
            outcome(client_of(clock=partial(float, now), obey_ai_txt=False), f"{web.url}/deep/er/x") == "tdm-reserved"
        )
        client.flush()
    assert [path for path, _ in web.asked].count("/ai.txt") == 2
    assert web.paths == []
    kept = b"".join(gzip.decompress(path.read_bytes()) for path in (tmp_path / "raw" / "robots").glob("*.warc.gz"))
    assert AI_TXT in kept


def test_a_redirect_is_asked_about_where_it_leads(web, reply, client_of) -> None:
    web.scripts["/.well-known/tdmrep.json"] = reply(200, json.dumps(RULES).encode())
    web.scripts["/b"] = reply(302, location="/pictures/a.jpg")
    assert outcome(client_of(), f"{web.url}/b") == "tdm-reserved"
    assert web.paths == ["/b"]
