"""What answers and whole hosts say against their use is honoured, each for its own reason, over real sockets."""

import gzip
import io
import json
from functools import partial

import pytest
from fastwarc import ArchiveIterator

from pipelines.raw import RawStore, recover, request_key
from pipelines.settings import HttpConfig
from pipelines.web.opt_outs import OptOut, read_opt_outs, refusal
from pipelines.web.origin_files import parse_tdm
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


def said(headers=None, page="") -> list[str]:
    return [str(each) for each in read_opt_outs(headers or {}, page.encode(), product="multilink")]


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
        ("unavailable_after: 25 Jun 2010 15:00:00 PST, noindex", "noindex"),
        ("max-snippet:20, noai", "noai"),
    ],
)
def test_a_header_says_it_to_everyone_or_to_us(value, words) -> None:
    assert said({"x-robots-tag": value}) == [f"robots-tag X-Robots-Tag: {words}"]


@pytest.mark.parametrize("value", ["", "all", "nofollow, noarchive", "googlebot: noindex, noai", "noaix", "a: b: noai"])
def test_other_words_and_words_to_others_say_nothing(value) -> None:
    assert said({"x-robots-tag": value}) == []


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('<meta name="robots" content="noai, noimageai">', ["robots-meta its meta element says noai, noimageai"]),
        ("<META CONTENT='NOINDEX' NAME='Robots'/>", ["robots-meta its meta element says noindex"]),
        ('<meta name="multilink" content="noindex">', ["robots-meta its meta element says noindex"]),
        ('<meta name="googlebot" content="noindex">', []),
        ('<!-- <meta name="robots" content="noindex"> -->', []),
        ("<meta name=robots content=noai>", ["robots-meta its meta element says noai"]),
        (
            '<meta name="tdm-reservation" content="1"><meta name="tdm-policy" content="https://a.example/p.json">',
            ["tdm-reserved its meta element says tdm-reservation 1, policy https://a.example/p.json"],
        ),
    ],
)
def test_a_page_says_it_in_its_head(head, expected) -> None:
    assert said(page=PAGE.format(head)) == expected


def test_a_page_counts_before_its_header() -> None:
    reserved = {"tdm-reservation": "1", "tdm-policy": "https://a.example/p"}
    assert said(reserved) == ["tdm-reserved its header says tdm-reservation 1, policy https://a.example/p"]
    assert said(reserved, PAGE.format('<meta name="tdm-reservation" content="0">')) == []
    assert said({"tdm-reservation": "0"}, PAGE.format('<meta name="tdm-reservation" content="1">'))[0].startswith("tdm")
    assert said({"tdm-reservation": "2"}) == []


def test_pages_of_others_are_judged_by_the_same_function() -> None:
    page = PAGE.format('<meta name="robots" content="noai">').encode()
    assert refusal({}, page, HttpConfig()) == OptOut(Reason.ROBOTS_META, "its meta element says noai")
    assert refusal({}, page, HttpConfig(obey_robots_tags=False)) is None
    assert refusal({"x-robots-tag": "other: noai"}, b"", HttpConfig(user_agent="other/2")) is not None


def test_a_hostile_page_is_read_quickly() -> None:
    for piece in (b"<!--", b"<meta ", b"<meta name=", b"<meta a='", b"<"):
        assert read_opt_outs({}, piece * 200_000, product="multilink") == []


@pytest.mark.parametrize(
    ("headers", "reason", "setting"),
    [
        ({"x_robots_tag": "noai"}, "robots-tag", "obey_robots_tags"),
        ({"x_robots_tag": "noimageindex"}, "robots-tag", "obey_robots_tags"),
        ({"x_robots_tag": "multilink: noimageai"}, "robots-tag", "obey_robots_tags"),
        ({"tdm_reservation": "1"}, "tdm-reserved", "obey_tdm"),
    ],
)
def test_an_image_says_no_and_is_not_kept(web, reply, client_of, tmp_path, headers, reason, setting) -> None:
    web.scripts["/a.jpg"] = reply(200, PICTURE, content_type="image/jpeg", **headers)
    client = client_of()
    assert outcome(client, f"{web.url}/a.jpg") == reason
    client.flush()
    assert outcome(client_of(), f"{web.url}/a.jpg") == reason
    assert web.paths == ["/a.jpg"]  # it was remembered
    kept = b"".join(gzip.decompress(path.read_bytes()) for path in tmp_path.rglob("*.warc.gz"))
    assert PICTURE not in kept
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


def test_what_an_answer_said_survives_a_kill(web, reply, client_of, tmp_path) -> None:
    web.scripts["/a.jpg"] = reply(200, PICTURE, x_robots_tag="noai", tdm_reservation="1", tdm_policy="/p")
    client = client_of(obey_robots_tags=False, obey_tdm=False)
    assert outcome(client, f"{web.url}/a.jpg") == "200"
    client.flush()
    raw = Folder(str(tmp_path / "raw"))
    (index,) = (tmp_path / "raw" / "web" / "index").iterdir()
    key = request_key("image", f"{web.url}/a.jpg")
    (before,) = RawStore(raw).find_many("web", [key])
    index.unlink()
    recover(raw)
    (after,) = RawStore(raw).find_many("web", [key])
    assert after == before
    assert after.opt_outs.splitlines() == [
        "robots-tag X-Robots-Tag: noai", "tdm-reserved its header says tdm-reservation 1, policy /p"
    ]  # fmt: skip
    (segment,) = (tmp_path / "raw" / "web").glob("*.warc.gz")
    records = [
        record.http_headers for record in ArchiveIterator(io.BytesIO(segment.read_bytes())) if record.http_headers
    ]
    assert records[0].get("X-Robots-Tag") == "noai"


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


@pytest.mark.parametrize(
    "body", [b"<html>", b"{}", b'{"location": "/", "tdm-reservation": 1}', b"[" * 100_000, b"\xff"]
)
def test_what_is_no_tdmrep_reserves_nothing(body) -> None:
    assert parse_tdm(body) == ()


@pytest.mark.parametrize(
    ("location", "path", "is_match"),
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
    ],
)
def test_patterns_are_those_of_robots_txt(location, path, is_match) -> None:
    (rule,) = parse_tdm(json.dumps([{"location": location, "tdm-reservation": 1}]).encode())
    assert rule.matches(path) is is_match


def test_a_pattern_of_many_stars_is_matched_quickly() -> None:
    (rule,) = parse_tdm(json.dumps([{"location": "/" + "*a" * 5_000 + "$", "tdm-reservation": 1}]).encode())
    assert not rule.matches("/" + "a" * 4_999)
    assert rule.matches("/" + "a" * 5_000)


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
