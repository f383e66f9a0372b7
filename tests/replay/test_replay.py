"""The recorded web keeps to the published protocols, and the recording to its own promises.

What clients see (PRAW, a parser, plain requests) is checked over real HTTP; what the pipeline makes of the recording is
tested elsewhere.
"""

import bz2
import io
import json
import lzma
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import praw
import pytest
import requests
import zstandard
from bs4 import BeautifulSoup
from PIL import Image

REPLAY = Path(__file__).parent
RECORDING = REPLAY / "recording"
sys.path.insert(0, str(REPLAY))

from server import RecordedWeb  # noqa: E402

EXPECTED = json.loads((RECORDING / "expected.json").read_text(encoding="utf-8"))
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
    assert [s.score for s in top] == sorted((p["score"] for p in wanted), reverse=True)[:5]


def test_praw_asks_for_things_by_name(web: RecordedWeb) -> None:
    names = [f"t3_{key}" for key in list(POSTS)[:3]]
    assert [s.fullname for s in reddit_of(web).info(fullnames=names)] == names


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


def test_animation_is_a_video_source(web: RecordedWeb) -> None:
    album = album_of("containers", animated=True)
    soup = BeautifulSoup(get(web, "imgur.com", f"/a/{album}").text, "html.parser")
    assert soup.select_one("div.post-image-container source[type='video/mp4']") is not None


def test_later_page_has_the_album_as_escaped_json(web: RecordedWeb) -> None:
    album = album_of("post-data")
    text = get(web, "imgur.com", f"/a/{album}").text
    assert "post-image-container" not in text
    start = text.index("window.postDataJSON=") + len("window.postDataJSON=")
    data = json.loads(json.JSONDecoder().raw_decode(text, start)[0])
    media = ALBUMS[album]["media"]
    assert [entry["id"] for entry in data["media"]] == [medium["id"] for medium in media]
    assert data["media"][0]["metadata"]["description"] == (media[0]["description"] or "")


def test_absent_albums(web: RecordedWeb) -> None:
    assert get(web, "imgur.com", "/a/nosuch").status_code == 404
    statuses = Counter(
        get(web, "imgur.com", f"/a/{key}").status_code for key, album in ALBUMS.items() if album["behaviour"] != "serve"
    )
    assert statuses == {404: 5, 410: 1, 503: 1, 200: 2}


def test_what_opts_out_says_so(web: RecordedWeb) -> None:
    albums = {album["behaviour"]: get(web, "imgur.com", f"/a/{key}") for key, album in ALBUMS.items()}
    assert '<meta name="robots" content="noai">' in albums["opted-out"].text
    assert albums["reserved"].headers["tdm-reservation"] == "1"
    image = get(web, "i.imgur.com", f"/{image_with('opted-out')}.jpg")
    assert (image.status_code, image.headers["X-Robots-Tag"]) == (200, "noai, noimageai")
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


def test_deleted_image_redirects_to_the_placeholder(web: RecordedWeb) -> None:
    answer = get(web, "i.imgur.com", f"/{image_with('removed')}.jpg")
    assert (answer.status_code, answer.headers["Location"]) == (302, "http://i.imgur.com/removed.png")
    placeholder = get(web, "i.imgur.com", "/removed.png")
    assert placeholder.status_code == 200
    assert Image.open(io.BytesIO(placeholder.content)).size == (161, 81)


@pytest.mark.parametrize(("behaviour", "status"), [("busy-first", 429), ("unavailable-first", 503)])
def test_first_request_is_put_off(web: RecordedWeb, behaviour: str, status: int) -> None:
    path = f"/{image_with(behaviour)}.jpg"
    first = get(web, "i.imgur.com", path)
    assert first.status_code == status
    assert first.headers.get("Retry-After") == ("1" if status == 429 else None)
    assert get(web, "i.imgur.com", path).status_code == 200
    assert [entry[2] for entry in web.requests] == [status, 200]


@pytest.mark.parametrize(("behaviour", "status"), [("not-found", 404), ("gone", 410)])
def test_image_that_is_not_there(web: RecordedWeb, behaviour: str, status: int) -> None:
    assert get(web, "i.imgur.com", f"/{image_with(behaviour)}.jpg").status_code == status


def test_redirects_to_itself_and_to_a_private_address(web: RecordedWeb) -> None:
    locations = {
        get(web, "i.imgur.com", f"/{key}.jpg").headers["Location"]
        for key, entry in IMAGES.items()
        if entry.get("behaviour") == "redirect"
    }
    loop = next(location for location in locations if "i.imgur.com" in location)
    assert locations == {loop, "http://169.254.169.254/latest/meta-data/"}
    assert get(web, "i.imgur.com", loop.removeprefix("http://i.imgur.com")).headers["Location"] == loop


def test_short_body_breaks_off(web: RecordedWeb) -> None:
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        get(web, "i.imgur.com", f"/{image_with('short-body')}.jpg")


def test_slow_image_and_trickle(web: RecordedWeb) -> None:
    started = time.monotonic()
    assert get(web, "i.imgur.com", f"/{image_with('slow')}.jpg").status_code == 200
    assert time.monotonic() - started > 1.9
    url = f"{web.url}/{image_with('trickle')}.jpg"
    with requests.get(url, headers={"Host": "i.imgur.com"}, stream=True, timeout=5) as answer:
        pieces = [next(answer.iter_content(1)) for _ in range(3)]
    assert pieces[0] == b"\xff"


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


def dump_lines() -> list[bytes]:
    reader = zstandard.ZstdDecompressor(max_window_size=2**31)
    with (RECORDING / "RS_recorded.zst").open("rb") as compressed, reader.stream_reader(compressed) as stream:
        return stream.read().split(b"\n")


def test_dump_needs_a_long_window_and_has_the_promised_flaws() -> None:
    compressed = (RECORDING / "RS_recorded.zst").read_bytes()
    with pytest.raises(zstandard.ZstdError):
        zstandard.ZstdDecompressor().stream_reader(io.BytesIO(compressed)).read()
    lines = dump_lines()
    assert b"" in lines
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(lines[-1])
    whole = [line for line in lines[:-1] if line]
    with pytest.raises(UnicodeDecodeError):
        b"\n".join(whole).decode()
    records = [json.loads(line.decode("utf-8", "replace")) for line in whole]
    seen = Counter(record["id"] for record in records)
    keys = {f"{name}#{n}" if n > 1 else name for name, count in seen.items() for n in range(1, count + 1)}
    assert keys == set(EXPECTED)
    assert any(record.get("_meta", {}).get("was_deleted_later") for record in records)
    assert any("&amp;" in str(record.get("url")) for record in records)


def test_small_dumps_hold_the_first_records() -> None:
    first = [line for line in dump_lines() if line][:40]
    for text in (
        bz2.decompress((RECORDING / "RS_first40.bz2").read_bytes()),
        lzma.decompress((RECORDING / "RS_first40.xz").read_bytes()),
    ):
        assert text.splitlines() == first


def test_recording_is_large_enough_and_small_enough() -> None:
    kept = [entry for entry in EXPECTED.values() if entry["outcome"] == "keep"]
    assert len(kept) >= 280
    assert all(entry["images"] >= 2 and entry["sentences"] >= 2 for entry in kept)
    assert sum(path.stat().st_size for path in RECORDING.rglob("*") if path.is_file()) < 15_000_000
    names = [path.name.lower() for path in (RECORDING / "images").iterdir()]
    assert len(set(names)) == len(names)


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
