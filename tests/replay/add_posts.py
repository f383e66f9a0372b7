"""Adds posts to a recorded web, as time would: `python tests/replay/add_posts.py --web workspace/web --posts 20`.

Each new post links an album of new pictures: two recorded ones side by side, captioned with both of their captions. The
posts go to a dump of their own, `RS_added-NNN.zst`, which is written last and read by the next build; a build that
is running does not see half of them. Calling it again adds others.
"""

import argparse
import json
import random
import re
from pathlib import Path
from typing import Any

import imagehash
import numpy as np
import zstandard
from behaviours import Behaviour, PageStyle
from imgur_host import load_albums
from PIL import Image

HALF_PX = (120, 200)
IMAGES = (6, 10)  # of a post, at least and at most
MIN_CAPTION_WORDS = 5
MIN_DISTANCE_BITS = 8  # of perceptual hashes; a build drops documents whose pictures are within 3
NEXT_POST = (1, 50_000)  # how far apart the numbers of posts are
SECONDS_BETWEEN = (600, 90_000)
POSTS = 20

Json = dict[str, Any]


def add_posts(web: Path, count: int) -> Path:
    """Add `count` posts with their albums and pictures, and return the dump that lists them."""
    number = len(list(web.glob("RS_added*"))) + 1
    rng = random.Random(f"added {number}")
    albums, images, posts = (json.loads((web / f"{name}.json").read_text()) for name in ("albums", "images", "posts"))
    pictures, seen = captioned_pictures(web), seen_pictures(web)
    last = max(int(key, 36) for key in posts)
    created_utc = max(int(post["created_utc"]) for post in posts.values())
    added: list[Json] = []
    for place in range(count):
        album = f"n{number:02}{place:02}"
        media = [
            add_picture(web, rng, f"{album}{position:02}", pictures, seen) for position in range(rng.randint(*IMAGES))
        ]
        last, created_utc = last + rng.randint(*NEXT_POST), created_utc + rng.randint(*SECONDS_BETWEEN)
        title = f"Two by two on canvas, {len(media)} pictures"
        albums[album] = {"title": title, "style": rng.choice(list(PageStyle)), "behaviour": "serve", "media": media}
        images |= {each["id"]: {"type": "image/jpeg", "file": f"{each['id']}.jpg"} for each in media}
        added.append(post_of(np.base_repr(last, 36).lower(), album, title, created_utc))
    posts |= {post["id"]: post for post in added}
    for name, entries in (("images", images), ("albums", albums), ("posts", posts)):
        replace(web / f"{name}.json", json.dumps(entries, ensure_ascii=False).encode())
    dump = web / f"RS_added-{number:03}.zst"
    lines = (json.dumps(post | {"retrieved_on": post["created_utc"] + 86_400}) + "\n" for post in added)
    replace(dump, zstandard.compress("".join(lines).encode()))
    return dump


def add_picture(web: Path, rng: random.Random, key: str, pictures: dict[Path, str], seen: list[Any]) -> Json:
    """Write a new picture, unlike all others, of two recorded ones, and return it as an album lists it."""
    while True:
        pair = rng.sample(sorted(pictures), 2)
        canvas = Image.new("RGB", (2 * HALF_PX[0], HALF_PX[1]))
        for place, path in enumerate(pair):
            with Image.open(path) as opened:
                canvas.paste(opened.convert("RGB").resize(HALF_PX), (place * HALF_PX[0], 0))
        if is_new(canvas, seen):
            break
    path = web / "images" / f"{key}.jpg"
    canvas.save(path, quality=70)
    caption = " ".join(pictures[each] for each in pair)
    about = {"id": key, "ext": "jpg", "mime": "image/jpeg", "width": canvas.width, "height": canvas.height}
    return about | {"size": path.stat().st_size, "animated": False, "title": None, "description": caption}


def post_of(key: str, album: str, title: str, created_utc: int) -> Json:
    """Return a submission as the API lists it."""
    about = {"id": key, "name": f"t3_{key}", "subreddit": "DIY", "title": title, "author": "maker", "num_comments": 0}
    where = {"url": f"http://imgur.com/a/{album}", "domain": "imgur.com", "permalink": f"/r/DIY/comments/{key}/"}
    rest = {"score": 50, "is_self": False, "over_18": False, "selftext": "", "created_utc": created_utc}
    return about | where | rest


def captioned_pictures(web: Path) -> dict[Path, str]:
    """Return the still pictures of albums that answer, with captions that are long enough."""
    found: dict[Path, str] = {}
    for album in load_albums(web).values():
        for medium in album["media"]:
            caption = " ".join(text for text in (medium["title"], medium["description"]) if text)
            path = web / "images" / f"{medium['id']}.jpg"
            is_long = len(re.findall(r"\w+", caption)) >= MIN_CAPTION_WORDS
            if album["behaviour"] == Behaviour.SERVE and is_long and is_picture(path):
                found[path] = caption
    return found


def is_picture(path: Path) -> bool:
    """Return whether a file is a whole, small picture."""
    try:
        with Image.open(path) as image:
            image.load()
            return max(image.size) <= 400
    except OSError:
        return False


def seen_pictures(web: Path) -> list[Any]:
    """Return the perceptual hashes of all pictures that are there."""
    seen = []
    for path in sorted((web / "images").glob("*.jpg")):
        if is_picture(path):
            with Image.open(path) as image:
                seen.append(imagehash.phash(image.convert("RGB")))
    return seen


def is_new(picture: Image.Image, seen: list[Any]) -> bool:
    """Return whether a picture is unlike those seen, and count it among them."""
    mark = imagehash.phash(picture)
    if seen and min(mark - other for other in seen) < MIN_DISTANCE_BITS:
        return False
    seen.append(mark)
    return True


def replace(path: Path, data: bytes) -> None:
    """Write a file; who opens it meanwhile reads the old one or the new."""
    part = path.with_name(f"new-{path.name}.part")  # no reader's pattern matches it
    part.write_bytes(data)
    part.replace(path)


def main() -> None:
    """Add posts, and print what to wait for."""
    parser = argparse.ArgumentParser(description="Add posts to a recorded web.")
    parser.add_argument("--web", type=Path, required=True, help="folder of the recorded web: workspace/web")
    parser.add_argument("--posts", type=int, default=POSTS)
    arguments = parser.parse_args()
    if not (arguments.web / "albums.json").is_file():
        parser.error(f"--web {arguments.web}: no recorded web there; `multilink up` makes one in its workspace")
    dump = add_posts(arguments.web, arguments.posts)
    print(f"{arguments.posts} posts added: {dump}; the next build reads them")


if __name__ == "__main__":
    main()
