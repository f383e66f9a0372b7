"""The recorded web answers by host, and has the pictures of the news.

What posts, albums and pictures are served as is tested by what a build makes of them (`tests/pipelines/test_diy.py`).
"""

import sys
from pathlib import Path

import requests

REPLAY = Path(__file__).parent
RECORDING = REPLAY / "recording"
sys.path.insert(0, str(REPLAY))

from server import RecordedWeb  # noqa: E402


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
