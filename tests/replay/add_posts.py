"""Adds posts to a recorded web, as time would: `python tests/replay/add_posts.py --web workspace/web --posts 20`.

Each new post links an album of new pictures: two recorded ones side by side, captioned with both of their captions. The
posts go to a dump of their own, `RS_added-NNN.zst`, which is written last and read by the next build; a build that
is running does not see half of them. Calling it again adds others.
"""

import argparse
import io
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from behaviours import Behaviour
from canvas import encode
from distinct import DistinctPictures
from dump_files import compress_zst, dump_line
from identifiers import Identifiers
from imgur_host import MediumEntry, load_albums
from PIL import Image
from record import SECONDS_BETWEEN, write_lines
from recorded import ImageFile, Json, Medium, Post
from regular_posts import IMAGE_COUNTS, draft, make_album
from stamp_albums import MIN_CAPTION_TOKENS, StampDeck, Studio, word_count

HALF_PX = (120, 200)
POSTS = 20


@dataclass(frozen=True, slots=True)
class Captioned:
    """A recorded picture that stands for itself: its file, and what is written under it."""

    path: Path
    caption: str


def add_posts(web: Path, count: int) -> Path:
    """Add `count` posts with their albums and pictures, and return the dump that lists them."""
    number = len(list(web.glob("RS_added*")))
    albums, images, posts = (read_entries(web / name) for name in ("albums.json", "images.json", "posts.json"))
    rng = random.Random(f"added {number}")
    identifiers = Identifiers(number + 1)
    identifiers.reserve([*albums, *images])
    studio = Studio(StampDeck([], rng), rng, identifiers, seen_pictures(web))
    added = list(number_posts(make_posts(studio, captioned_pictures(web), count), studio, posts))
    pictures = [medium.image for post in added if post.album is not None for medium in post.album.media]
    for picture in pictures:
        (web / "images" / picture.file_name).write_bytes(cast(bytes, picture.data))
    replace_entries(web / "images.json", images | {each.id: each.to_json() for each in pictures})
    replace_entries(web / "albums.json", albums | {p.album.id: p.album.to_json() for p in added if p.album is not None})
    replace_entries(web / "posts.json", posts | {post.id: post.to_json() for post in added})
    dump = web / f"RS_added-{number + 1:03d}.zst"
    part = web / f"{dump.name}.part".removeprefix("RS_")  # no reader's pattern matches it
    part.write_bytes(compress_zst(b"\n".join(map(dump_line, added)) + b"\n"))
    part.replace(dump)
    return dump


def make_posts(studio: Studio, pictures: list[Captioned], count: int) -> Iterator[Post]:
    """Yield drafts of posts, each of an album of new pictures."""
    for _ in range(count):
        media = list(pair_pictures(studio, pictures, studio.rng.choice(IMAGE_COUNTS)))
        title = f"Two by two on canvas, {len(media)} pictures"
        yield draft(studio, make_album(studio, media, title), title)


def pair_pictures(studio: Studio, pictures: list[Captioned], count: int) -> Iterator[Medium]:
    """Yield `count` new pictures of two recorded ones each, none of them used twice."""
    chosen = iter(studio.rng.sample(pictures, len(pictures)))
    while count:
        pair = next(chosen), next(chosen)
        canvas = Image.new("RGB", (2 * HALF_PX[0], HALF_PX[1]))
        for place, each in enumerate(pair):
            with Image.open(each.path) as opened:
                canvas.paste(opened.convert("RGB").resize(HALF_PX), (place * HALF_PX[0], 0))
        data = encode(canvas, extension="jpg")
        with Image.open(io.BytesIO(data)) as reopened:
            if not studio.distinct.claim(reopened.convert("RGB")):
                continue
        count -= 1
        image: ImageFile = studio.file(data, "jpg", canvas.size)
        yield Medium(image=image, description=" ".join(each.caption for each in pair))


def number_posts(drafts: Iterator[Post], studio: Studio, before: dict[str, Json]) -> Iterator[Post]:
    """Yield the drafts with identifiers and times after those of the posts before."""
    newest = max(before, key=lambda key: (len(key), key))
    created_utc = max(int(cast(dict[str, int], post)["created_utc"]) for post in before.values())
    for post in drafts:
        while (len(identifier := studio.identifiers.post()), identifier) <= (len(newest), newest):
            pass
        created_utc += studio.rng.randint(*SECONDS_BETWEEN)
        yield replace(post, id=identifier, created_utc=created_utc)


def captioned_pictures(web: Path) -> list[Captioned]:
    """The still pictures of all albums that answer and have a caption long enough to find a partner for."""
    found: dict[str, Captioned] = {}
    for album in load_albums(web).values():
        for medium in album["media"]:
            caption = caption_of(medium)
            path = web / "images" / f"{medium['id']}.jpg"
            if album["behaviour"] == Behaviour.SERVE and word_count(caption) >= MIN_CAPTION_TOKENS and path.is_file():
                found[medium["id"]] = Captioned(path, caption)
    return [each for each in found.values() if is_picture(each.path)]


def caption_of(medium: MediumEntry) -> str:
    """Title and description, joined by a space."""
    return " ".join(text for text in (medium["title"], medium["description"]) if text)


def is_picture(path: Path) -> bool:
    """Return whether a file is a whole, small picture."""
    try:
        with Image.open(path) as image:
            image.load()
            return max(image.size) <= 400
    except OSError:
        return False


def seen_pictures(web: Path) -> DistinctPictures:
    """The fingerprints of all pictures that are there."""
    seen = DistinctPictures(capacity=100_000)
    for path in sorted((web / "images").iterdir()):
        if path.suffix == ".jpg" and is_picture(path):
            with Image.open(path) as image:
                seen.claim(image.convert("RGB"))
    return seen


def read_entries(path: Path) -> dict[str, Json]:
    """The entries of one of the recording's files."""
    entries: dict[str, Json] = json.loads(path.read_text(encoding="utf-8"))
    return entries


def replace_entries(path: Path, entries: dict[str, Json]) -> None:
    """Write the entries of one of the files; a server that starts meanwhile reads the old ones or the new."""
    part = path.with_suffix(".part")
    write_lines(part, entries)
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
