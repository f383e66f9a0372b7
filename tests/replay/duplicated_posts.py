"""Posts that share a picture: with another post, through a link to the same album, or within one album.

Every one of them drops, since a document with any image that has a duplicate anywhere is dropped. The copies
are made by encoding or scaling, and are checked to stay within the pipeline's threshold.
"""

import io
from collections.abc import Iterator
from dataclasses import replace

from canvas import encode
from distinct import distance_bits, fingerprint
from PIL import Image
from recorded import ImageFile, Medium, Post
from regular_posts import draft, make_album
from stamp_albums import Studio

REASON = "duplicate-image"
MAX_COPY_DISTANCE_BITS = 2
COPIES: tuple[tuple[str, float, int], ...] = (
    ("jpg", 1.0, 45),
    ("jpg", 0.7, 75),
    ("jpg", 1.3, 70),
    ("png", 1.0, 0),
    ("jpg", 0.85, 60),
)


class UnlikeCopyError(Exception):
    """A copy of a picture came out too far from it: try another picture."""


def copy_of(studio: Studio, image: ImageFile, extension: str, scale: float, quality: int) -> ImageFile:
    """The picture encoded again, under a new identifier.

    Raises:
        UnlikeCopyError: The copy's fingerprint differs in more than two bits.
    """
    with Image.open(io.BytesIO(image.data or b"")) as opened:
        original = opened.convert("RGB")
    size = (round(original.width * scale), round(original.height * scale))
    copied = original.resize(size, Image.Resampling.BICUBIC)
    data = encode(copied, extension=extension, quality=quality)
    with Image.open(io.BytesIO(data)) as reopened:
        distance = distance_bits(fingerprint(original), fingerprint(reopened.convert("RGB")))
    if distance > MAX_COPY_DISTANCE_BITS:
        raise UnlikeCopyError(f"{image.file_name}: {distance} bits apart")
    return studio.file(data, extension, size)


def near_copy(studio: Studio, medium: Medium, number: int) -> Medium:
    """The medium with a copy of its picture; the copy's kind follows from the number."""
    extension, scale, quality = COPIES[number % len(COPIES)]
    return replace(medium, image=copy_of(studio, medium.image, extension, scale, quality))


def shared_picture_posts(studio: Studio, pairs: int) -> Iterator[Post]:
    """Pairs of posts; the second of each has a copy of one picture of the first."""
    made = 0
    while made < pairs:
        first, second = studio.album_media(None, 3), studio.album_media(None, 3)
        try:
            second.insert(1, near_copy(studio, first[0], made))
        except UnlikeCopyError:
            continue
        for media in (first, second):
            notes = [f"shared-picture-{made}"]
            yield draft(studio, make_album(studio, media), "Some canvases", reason=REASON, notes=notes)
        made += 1


def repost_posts(studio: Studio, pairs: int) -> Iterator[Post]:
    """Pairs of posts that link the same album."""
    for _ in range(pairs):
        post = draft(studio, make_album(studio, studio.album_media(None, 3)), "Canvases", reason=REASON)
        post = replace(post, outcome=replace(post.outcome, notes=("same-album",)))
        yield post
        yield replace(post, title="Canvases (repost)", score=post.score + 7, author="reposter")


def twice_within_posts(studio: Studio) -> Iterator[Post]:
    """A post with one image listed twice, and one with a copy of its own picture."""
    media = studio.album_media(None, 3)
    listed_twice = [*media, Medium(image=media[0].image)]
    notes = ["twice-within"]
    yield draft(studio, make_album(studio, listed_twice), "One canvas twice", reason=REASON, notes=notes)
    while True:
        media = studio.album_media(None, 3)
        try:
            media.append(near_copy(studio, media[0], 0))
        except UnlikeCopyError:
            continue
        yield draft(studio, make_album(studio, media), "One canvas copied", reason=REASON, notes=notes)
        return
