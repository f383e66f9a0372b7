"""The recorded web answers by host, and serves the pictures of the news and posts that are added to it.

What posts, albums and pictures are served as is tested by what a build makes of them (`tests/pipelines/test_diy.py`).
"""

import io
import itertools
import json
import shutil
import sys
from pathlib import Path

import pytest
import requests
import zstandard
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))
from add_posts import MIN_DISTANCE_BITS, add_posts, captioned_pictures, seen_pictures
from server import RecordedWeb

RECORDING = Path(__file__).parent / "recording"
ALBUMS = 12


def get(web: RecordedWeb, host: str, path: str) -> requests.Response:
    return requests.get(f"{web.url}{path}", headers={"Host": host}, allow_redirects=False, timeout=10)


def test_pictures_of_the_news_are_served_and_nothing_beside_them() -> None:
    host, folder = "pictures.newsroom.example", RECORDING / "news"
    absent = ("999.jpg", "..%2farticles.jsonl", "../articles.jsonl")
    with RecordedWeb(RECORDING) as web:
        found = get(web, host, "/pictures/000.jpg")
        assert (found.status_code, found.headers["Content-Type"]) == (200, "image/jpeg")
        assert found.content == (folder / "pictures" / "000.jpg").read_bytes()
        assert [get(web, host, f"/pictures/{name}").status_code for name in absent] == [404] * 3
        assert get(web, host, "/robots.txt").status_code == 200
        assert get(web, "example.org", "/").status_code == 421
    assert web.requests[-1] == ("example.org", "/", 421)


@pytest.fixture
def web(tmp_path: Path) -> Path:
    """A recorded web of a few albums."""
    entries = {name: json.loads((RECORDING / f"{name}.json").read_text()) for name in ("albums", "images", "posts")}
    entries["albums"] = dict(list(entries["albums"].items())[:ALBUMS])
    listed = {medium["id"] for album in entries["albums"].values() for medium in album["media"]}
    entries["images"] = {key: image for key, image in entries["images"].items() if key in listed}
    (tmp_path / "images").mkdir()
    for name, values in entries.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(values))
    for file in {"removed.png", *(image["file"] for image in entries["images"].values() if "file" in image)}:
        shutil.copy(RECORDING / "images" / file, tmp_path / "images")
    return tmp_path


def records(dump: Path) -> list[dict[str, object]]:
    reader = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(dump.open("rb"))
    return [json.loads(line) for line in io.TextIOWrapper(reader, encoding="utf-8")]


def test_added_posts_are_served_with_their_albums_and_pictures(web: Path) -> None:
    before = json.loads((web / "posts.json").read_text())
    recorded = set(captioned_pictures(web).values())
    added = records(add_posts(web, 2))
    assert len(added) == 2 and min(int(str(post["id"]), 36) for post in added) > max(int(key, 36) for key in before)
    albums = json.loads((web / "albums.json").read_text())
    with RecordedWeb(web) as served:
        for key in (str(post["url"]).rpartition("/")[2] for post in added):
            page = requests.get(f"{served.url}/a/{key}", timeout=10).text
            for medium in albums[key]["media"]:
                assert medium["id"] in page and any(medium["description"].startswith(text) for text in recorded)
                picture = requests.get(f"{served.url}/{medium['id']}.jpg", timeout=10).content
                assert Image.open(io.BytesIO(picture)).size == (medium["width"], medium["height"])


def test_adding_again_adds_others(web: Path) -> None:
    recorded = itertools.combinations(seen_pictures(web), 2)
    near_copies = sum(one - other < MIN_DISTANCE_BITS for one, other in recorded)
    first, second = add_posts(web, 1), add_posts(web, 1)
    assert [first.name, second.name] == ["RS_added-001.zst", "RS_added-002.zst"]
    assert {post["id"] for post in records(first)}.isdisjoint(post["id"] for post in records(second))
    distances = [one - other for one, other in itertools.combinations(seen_pictures(web), 2)]
    assert sum(distance < MIN_DISTANCE_BITS for distance in distances) == near_copies
    assert not list(web.glob("*.part"))
