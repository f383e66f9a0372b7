"""The recorded web keeps to the published protocols, and the recording to its own promises.

What clients see (PRAW, a parser, plain requests) is checked over real HTTP; what the pipeline makes of the recording is
tested elsewhere.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import praw
import pytest
import requests
from bs4 import BeautifulSoup

REPLAY = Path(__file__).parent
RECORDING = REPLAY / "recording"
sys.path.insert(0, str(REPLAY))

from server import RecordedWeb  # noqa: E402

ALBUMS = json.loads((RECORDING / "albums.json").read_text(encoding="utf-8"))
IMAGES = json.loads((RECORDING / "images.json").read_text(encoding="utf-8"))
POSTS = json.loads((RECORDING / "posts.json").read_text(encoding="utf-8"))
CLIENT = {"Authorization": "Client-ID 0123456789abcde"}


@pytest.fixture
def web() -> Iterator[RecordedWeb]:
    with RecordedWeb(RECORDING) as running:
        yield running


def get(web: RecordedWeb, host: str, path: str, **headers: str) -> requests.Response:
    url = f"{web.url}{path}"
    return requests.get(url, headers={"Host": host, **headers}, allow_redirects=False, timeout=10)


def image_with(behaviour: str) -> str:
    return next(str(key) for key, entry in IMAGES.items() if entry.get("behaviour") == behaviour)


def album_of(style: str, *, animated: bool = False) -> str:
    return next(
        str(key)
        for key, album in ALBUMS.items()
        if album["style"] == style
        and album["behaviour"] == "serve"
        and len(album["media"]) > 3
        and any(medium["animated"] for medium in album["media"]) == animated
    )


def reddit_of(web: RecordedWeb) -> praw.Reddit:
    return praw.Reddit(
        client_id="id",
        client_secret="secret",
        user_agent="multilink tests",
        reddit_url=web.url,
        oauth_url=web.url,
        check_for_updates=False,
    )


def test_praw_lists_the_subreddit_page_by_page(web: RecordedWeb) -> None:
    reddit = reddit_of(web)
    listed = list(reddit.subreddit("DIY").new(limit=None))
    wanted = sorted((p for p in POSTS.values() if p["subreddit"] == "DIY"), key=lambda p: -p["created_utc"])
    assert [(s.id, s.url, s.score, s.title) for s in listed] == [
        (p["id"], p["url"], p["score"], p["title"]) for p in wanted
    ]
    pages = [entry for entry in web.requests if entry[1] == "/r/DIY/new"]
    assert len(pages) == -(-len(wanted) // 100)
    assert reddit.auth.limits["used"] is not None
    top = list(reddit.subreddit("DIY").top(limit=5))
    names = [f"t3_{key}" for key in list(POSTS)[:3]]
    assert [s.fullname for s in reddit.info(fullnames=names)] == names
    assert [s.score for s in top] == sorted((p["score"] for p in wanted), reverse=True)[:5]


def test_reddit_refuses_without_a_token_and_escapes_unless_asked_not_to(web: RecordedWeb) -> None:
    refused = get(web, "oauth.reddit.com", "/r/DIY/new", Authorization="Bearer forged")
    assert (refused.status_code, refused.json()["error"]) == (401, 401)
    assert requests.post(f"{web.url}/api/v1/access_token", timeout=10).status_code == 401
    form = {"grant_type": "client_credentials"}
    grant = requests.post(f"{web.url}/api/v1/access_token", data=form, auth=("id", "secret"), timeout=10).json()
    assert (grant["token_type"], grant["scope"]) == ("bearer", "*")
    bearer = f"Bearer {grant['access_token']}"
    name = next(key for key, post in POSTS.items() if "&" in post["url"])
    plain = get(web, "oauth.reddit.com", f"/api/info?id=t3_{name}", Authorization=bearer)
    assert "&amp;" in plain.json()["data"]["children"][0]["data"]["url"]
    assert float(plain.headers["X-Ratelimit-Remaining"]) > 0
    assert get(web, "oauth.reddit.com", "/r/nosuch/new", Authorization=bearer).status_code == 404


def test_container_page_has_each_image_with_its_caption(web: RecordedWeb) -> None:
    album = album_of("containers")
    soup = BeautifulSoup(get(web, "imgur.com", f"/a/{album}").text, "html.parser")
    moving = BeautifulSoup(get(web, "imgur.com", f"/a/{album_of('containers', animated=True)}").text, "html.parser")
    assert moving.select_one("div.post-image-container source[type='video/mp4']") is not None
    blocks = soup.select("div.post-image-container")
    media = ALBUMS[album]["media"]
    assert [block["id"] for block in blocks] == [medium["id"] for medium in media]
    for block, medium in zip(blocks, media, strict=True):
        image = block.find("img", itemprop="contentURL")
        assert image is not None and image["src"] == f"//i.imgur.com/{medium['id']}.{medium['ext']}"
        for field in ("title", "description"):
            found = block.select_one(f".post-image-meta .post-image-{field}")
            assert (found.get_text() if found else None) == medium[field]
    assert get(web, "imgur.com", f"/a/{album}/layout/blog").status_code == 200


def test_later_page_has_the_album_as_escaped_json(web: RecordedWeb) -> None:
    album = album_of("post-data")
    text = get(web, "imgur.com", f"/a/{album}").text
    assert "post-image-container" not in text
    start = text.index("window.postDataJSON=") + len("window.postDataJSON=")
    data = json.loads(json.JSONDecoder().raw_decode(text, start)[0])
    media = ALBUMS[album]["media"]
    assert [entry["id"] for entry in data["media"]] == [medium["id"] for medium in media]
    assert data["media"][0]["metadata"]["description"] == (media[0]["description"] or "")


def test_what_opts_out_says_so(web: RecordedWeb) -> None:
    odd = {key: album["behaviour"] for key, album in ALBUMS.items() if album["behaviour"] != "serve"}
    albums = {behaviour: get(web, "imgur.com", f"/a/{key}") for key, behaviour in odd.items()}
    assert '<meta name="robots" content="noai">' in albums["opted-out"].text
    assert albums["reserved"].headers["tdm-reservation"] == "1"
    statuses = {behaviour: answer.status_code for behaviour, answer in albums.items()}
    absent = {"not-found": 404, "gone": 410, "unavailable-first": 503}
    assert statuses == absent | {"opted-out": 200, "reserved": 200}
    assert get(web, "imgur.com", "/a/nosuch").status_code == 404
    rules = get(web, "reserved.example", "/.well-known/tdmrep.json").json()
    assert rules == [{"location": "/", "tdm-reservation": 1, "tdm-policy": "http://reserved.example/policy.json"}]
    assert "Disallow: /" in get(web, "untrained.example", "/ai.txt").text
    assert get(web, "i.imgur.com", "/ai.txt").status_code == 404


def test_api_wants_a_client_and_lists_the_same_images(web: RecordedWeb) -> None:
    album = album_of("post-data")
    assert get(web, "api.imgur.com", f"/3/album/{album}").status_code == 401
    assert get(web, "api.imgur.com", f"/3/album/{album}", Authorization="Client-ID ").status_code == 403
    answer = get(web, "api.imgur.com", f"/3/album/{album}", **CLIENT)
    body = answer.json()
    assert (body["success"], body["status"], body["data"]["id"]) == (True, 200, album)
    assert [i["id"] for i in body["data"]["images"]] == [m["id"] for m in ALBUMS[album]["media"]]
    assert int(answer.headers["X-RateLimit-ClientRemaining"]) < 12_500
    gone = get(web, "api.imgur.com", "/3/album/nosuch", **CLIENT)
    assert (gone.status_code, gone.json()["success"]) == (404, False)


def test_image_comes_with_its_type_and_a_tag(web: RecordedWeb) -> None:
    key = next(key for key, entry in IMAGES.items() if entry == {"type": "image/jpeg", "file": f"{key}.jpg"})
    answer = get(web, "i.imgur.com", f"/{key}.jpg")
    assert answer.headers["Content-Type"] == "image/jpeg"
    assert answer.content == (RECORDING / "images" / f"{key}.jpg").read_bytes()
    again = get(web, "i.imgur.com", f"/{key}.jpg", **{"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = get(web, "i.imgur.com", f"/{key}.jpeg")
    assert (other.status_code, other.headers["Location"]) == (301, f"http://i.imgur.com/{key}.jpg")


IMGUR = "http://i.imgur.com"
PRIVATE = "http://169.254.169.254/latest/meta-data/"


@pytest.mark.parametrize(
    ("behaviour", "answers"),
    [
        ("removed", [(302, {"Location": f"{IMGUR}/removed.png"})]),
        ("not-found", [(404, {})]),
        ("gone", [(410, {})]),
        ("busy-first", [(429, {"Retry-After": "1"}), (200, {})]),
        ("unavailable-first", [(503, {}), (200, {})]),
        ("opted-out", [(200, {"X-Robots-Tag": "noai, noimageai"})]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_image_behaves_as_recorded(
    web: RecordedWeb, behaviour: str, answers: list[tuple[int, dict[str, str]]]
) -> None:
    for status, headers in answers:
        answer = get(web, "i.imgur.com", f"/{image_with(behaviour)}.jpg")
        assert answer.status_code == status and headers.items() <= answer.headers.items()


def test_redirects_lead_to_themselves_and_to_a_private_address(web: RecordedWeb) -> None:
    moved = [key for key, entry in IMAGES.items() if entry.get("behaviour") == "redirect"]
    found = {key: get(web, "i.imgur.com", f"/{key}.jpg").headers["Location"] for key in moved}
    assert {*found.values()} == {PRIVATE, *(f"{IMGUR}/{key}.jpg" for key in moved if found[key] != PRIVATE)}


def test_bodies_are_short_late_or_without_end(web: RecordedWeb) -> None:
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        get(web, "i.imgur.com", f"/{image_with('short-body')}.jpg")
    url = f"{web.url}/{image_with('trickle')}.jpg"
    with requests.get(url, headers={"Host": "i.imgur.com"}, stream=True, timeout=5) as answer:
        assert next(answer.iter_content(1)) == b"\xff"


def test_connections_are_kept_and_other_hosts_refused(web: RecordedWeb) -> None:
    with requests.Session() as session:
        for path in ("/robots.txt", "/removed.png", "/robots.txt"):
            answer = session.get(f"{web.url}{path}", headers={"Host": "i.imgur.com"}, timeout=10)
            assert answer.status_code == 200 and answer.headers.get("Connection") != "close"
    assert get(web, "example.org", "/").status_code == 421
    assert get(web, "api.imgur.com", "/robots.txt", **CLIENT).status_code == 404
    assert web.requests[-2:] == [("example.org", "/", 421), ("api.imgur.com", "/robots.txt", 404)]


def test_as_a_process(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    command = [sys.executable, str(REPLAY / "server.py"), "--recording", str(RECORDING), "--port-file", str(port_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = f"http://127.0.0.1:{port_file.read_text()}"
        assert line == f"serving {url}\n"
        requests.get(f"{url}/removed.png", headers={"Host": "i.imgur.com"}, timeout=10)
        assert requests.get(f"{url}/__requests", timeout=10).json() == [["i.imgur.com", "/removed.png", 200]]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_pictures_of_the_news_are_served_and_nothing_beside_them(web: RecordedWeb) -> None:
    host, folder = "pictures.newsroom.example", RECORDING / "news"
    found = get(web, host, "/pictures/000.jpg")
    assert (found.status_code, found.headers["Content-Type"]) == (200, "image/jpeg")
    assert found.content == (folder / "pictures" / "000.jpg").read_bytes()
    for path in (
        "/pictures/999.jpg",
        "/articles.jsonl",
        "/pictures/..%2farticles.jsonl",
        "/pictures/../articles.jsonl",
    ):
        assert get(web, host, path).status_code == 404
    assert get(web, host, "/robots.txt").status_code == 200
