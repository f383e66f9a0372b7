"""Posts that are added to a recorded web are served like the recorded ones, and listed in a dump of their own."""

import io
import itertools
import json
import sys
import urllib.request
from pathlib import Path

import pytest
import zstandard
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))
from add_posts import MIN_DISTANCE_BITS, add_posts, captioned_pictures, seen_pictures
from server import RecordedWeb

RECORDING = Path(__file__).parent / "recording"
ALBUMS = 12


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
    for image in entries["images"].values():
        if "file" in image:
            (tmp_path / "images" / image["file"]).write_bytes((RECORDING / "images" / image["file"]).read_bytes())
    (tmp_path / "images" / "removed.png").write_bytes((RECORDING / "images" / "removed.png").read_bytes())
    return tmp_path


def records(dump: Path) -> list[dict[str, object]]:
    reader = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(dump.open("rb"))
    return [json.loads(line) for line in io.TextIOWrapper(reader, encoding="utf-8")]


def test_added_posts_are_served_with_their_albums_and_pictures(web: Path) -> None:
    before = json.loads((web / "posts.json").read_text())
    recorded = set(captioned_pictures(web).values())
    added = records(add_posts(web, 2))
    assert len(added) == 2
    newest = max(before, key=lambda key: (len(key), key))
    assert all((len(str(post["id"])), str(post["id"])) > (len(newest), newest) for post in added)
    albums = json.loads((web / "albums.json").read_text())
    with RecordedWeb(web) as served:
        for post in added:
            album = albums[str(post["url"]).rpartition("/")[2]]
            with urllib.request.urlopen(f"{served.url}/a/{str(post['url']).rpartition('/')[2]}") as answer:
                page = answer.read().decode()
            for medium in album["media"]:
                assert medium["id"] in page
                assert any(medium["description"].startswith(caption) for caption in recorded)
                with urllib.request.urlopen(f"{served.url}/{medium['id']}.jpg") as answer:
                    picture = Image.open(io.BytesIO(answer.read()))
                assert picture.size == (medium["width"], medium["height"])


def test_adding_again_adds_others(web: Path) -> None:
    recorded = itertools.combinations(seen_pictures(web), 2)
    near_copies = sum(one - other < MIN_DISTANCE_BITS for one, other in recorded)
    first, second = add_posts(web, 1), add_posts(web, 1)
    assert [first.name, second.name] == ["RS_added-001.zst", "RS_added-002.zst"]
    assert {post["id"] for post in records(first)}.isdisjoint(post["id"] for post in records(second))
    distances = [one - other for one, other in itertools.combinations(seen_pictures(web), 2)]
    assert sum(distance < MIN_DISTANCE_BITS for distance in distances) == near_copies
    assert not list(web.glob("*.part"))
