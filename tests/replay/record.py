"""Makes the recording: `python tests/replay/record.py --tuxpaint DIR --gimp-help DIR --out DIR`.

The folders are those of the unpacked Debian packages `tuxpaint-stamps-default` (`usr/share/tuxpaint`) and
`gimp-help-en` (`usr/share/gimp`). The same packages give the same posts, addresses and expectations; the
encoders' versions decide the image bytes. Here: the order of work, numbering and writing. Needs `resvg-py`
beside the project's own dependencies.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import dropped_posts
import odd_images
from distinct import DistinctPictures
from dump_files import write_dumps
from duplicated_posts import repost_posts, shared_picture_posts, twice_within_posts
from gimp_pages import load_pages
from hostile_posts import hostile_posts
from identifiers import Identifiers
from recorded import Album, ImageFile, Json, Post
from regular_posts import SUBREDDIT, manual_posts, stamp_posts, with_peculiarities
from stamp_albums import StampDeck, Studio, themes_of
from stamps import load_stamps

SEED = 20_140_601
FIRST_CREATED_UTC = 1_401_580_800
SECONDS_BETWEEN = (600, 90_000)
STAMP_POSTS = 228
MANUAL_POSTS = 48


def make_posts(studio: Studio, tuxpaint_themes: Sequence[str], gimp_help: Path) -> list[Post]:
    """All posts, numbered in the order of time."""
    regular = [
        *manual_posts(studio, load_pages(gimp_help), MANUAL_POSTS),
        *stamp_posts(studio, tuxpaint_themes, STAMP_POSTS),
    ]
    low = list(dropped_posts.low_score_posts(studio, 30))
    drafts = [
        *with_peculiarities(regular, studio.rng),
        *hostile_posts(studio),
        *low,
        *dropped_posts.too_many_images_posts(studio, low),
        *dropped_posts.not_album_posts(studio, 18),
        *dropped_posts.album_gone_posts(studio, 8),
        *dropped_posts.too_few_images_posts(studio, 9),
        *dropped_posts.too_few_captions_posts(studio, 12),
        *dropped_posts.deleted_posts(studio, 5),
        *dropped_posts.malformed_posts(studio),
        *dropped_posts.other_subreddit_posts(studio, 30),
        *shared_picture_posts(studio, 10),
        *repost_posts(studio, 2),
        *twice_within_posts(studio),
    ]
    studio.rng.shuffle(drafts)
    return number(drafts, studio)


def number(drafts: Iterable[Post], studio: Studio) -> list[Post]:
    """The drafts with identifiers and times, both ascending."""
    created_utc = FIRST_CREATED_UTC
    posts = []
    for post in drafts:
        created_utc += studio.rng.randint(*SECONDS_BETWEEN)
        identifier = studio.identifiers.post()
        url = post.url.replace("{id}", identifier)
        posts.append(replace(post, id=identifier, url=url, created_utc=created_utc))
    return posts


def expectations(posts: Sequence[Post]) -> dict[str, Json]:
    """The outcome of every post, and `<id>#2` for the second line of a repeated record."""
    expected: dict[str, Json] = {post.id: post.outcome.to_json() for post in posts}
    for post in posts:
        if post.repeated_in_dump:
            expected[f"{post.id}#2"] = dropped_posts.repeated(post).to_json()
    return expected


def check(posts: Sequence[Post]) -> None:
    """Stop when a post meant to be kept breaks a rule of the build.

    Raises:
        ValueError: Naming the post and the rule.
    """
    for post in posts:
        kept = post.outcome.reason is None
        if kept and (post.outcome.images < 2 or dropped_posts.long_captions(post) < 2):
            raise ValueError(f"{post.title!r}: a kept post needs two images and two long captions")
        if post.outcome.reason == "too-few-captions" and dropped_posts.long_captions(post) > 1:
            raise ValueError(f"{post.title!r}: meant to have at most one long caption")


def write_lines(path: Path, entries: Mapping[str, Json]) -> None:
    """One JSON object, an entry a line."""
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in entries.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def write_recording(out: Path, posts: Sequence[Post]) -> None:
    """Replace the recording's data; its README and licences stay."""
    albums: dict[str, Album] = {post.album.id: post.album for post in posts if post.album is not None}
    images: dict[str, ImageFile] = {medium.image.id: medium.image for a in albums.values() for medium in a.media}
    folder = out / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for image in images.values():
        if image.data is not None:
            (folder / image.file_name).write_bytes(image.data)
    (folder / "removed.png").write_bytes(odd_images.placeholder_png())
    write_lines(out / "images.json", {key: image.to_json() for key, image in images.items()})
    write_lines(out / "albums.json", {key: album.to_json() for key, album in albums.items()})
    write_lines(out / "posts.json", {post.id: post.to_json() for post in posts if post.listed})
    write_lines(out / "expected.json", expectations(posts))
    write_dumps(out, posts)


def summary(posts: Sequence[Post]) -> str:
    """One line for each outcome."""
    counts = Counter(post.outcome.reason or "keep" for post in posts)
    in_subreddit = sum(post.subreddit == SUBREDDIT for post in posts)
    lines = [f"{len(posts)} posts, {in_subreddit} of them in r/{SUBREDDIT}"]
    return "\n".join(lines + [f"{count:5d}  {reason}" for reason, count in counts.most_common()])


def main() -> None:
    """Read the packages, make the posts, write the recording, print a summary."""
    parser = argparse.ArgumentParser(description="Make the recorded web.")
    parser.add_argument("--tuxpaint", type=Path, required=True)
    parser.add_argument("--gimp-help", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rng = random.Random(SEED)
    stamps = load_stamps(arguments.tuxpaint)
    studio = Studio(StampDeck(stamps, rng), rng, Identifiers(SEED), DistinctPictures())
    posts = make_posts(studio, themes_of(stamps), arguments.gimp_help)
    check(posts)
    write_recording(arguments.out, posts)
    print(summary(posts))


if __name__ == "__main__":
    main()
