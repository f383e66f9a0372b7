"""The posts that a correct build drops, each for one intended reason.

One function a reason. Near-duplicates are in `duplicated_posts.py`. Albums here are small: most of their pictures
are never fetched. The images of low-score posts serve a second time in the albums that are too long, so
that those cost nothing and no kept post shares an image with them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from behaviours import Behaviour
from hostile_posts import animation, failing
from recorded import Json, Medium, Outcome, Post
from regular_posts import MIN_SCORE, draft, make_album
from stamp_albums import MIN_CAPTION_TOKENS, Studio, word_count

OTHER_SUBREDDITS = ("crafts", "woodworking", "pics", "HomeImprovement", "DIYUK")
TOO_MANY = 45
OPTED_OUT = {1: Behaviour.OPTED_OUT, 2: Behaviour.RESERVED}
NOT_ALBUMS = (
    "http://i.imgur.com/{image}.jpg",
    "http://imgur.com/{image}",
    "http://imgur.com/gallery/{album}",
    "http://imgur.com/r/DIY/{image}",
    "https://www.youtube.com/watch?v={image}&feature=youtu.be",
    "https://www.reddit.com/r/DIY/comments/{{id}}/",
    "http://notimgur.com/a/{album}",
    "http://example.org/a/{album}",
    "http://example.org/?next=http://imgur.com/a/{album}",
)


def dropped(studio: Studio, reason: str, count: int, title: str) -> Post:
    """A post of a sound album of `count` pictures that drops for the reason."""
    media = studio.album_media(None, count)
    return draft(studio, make_album(studio, media), title, reason=reason)


def low_score_posts(studio: Studio, count: int) -> Iterator[Post]:
    """Posts just and far below the threshold."""
    for number in range(count):
        score = MIN_SCORE - 1 if number == 0 else studio.rng.randrange(MIN_SCORE)
        yield replace(dropped(studio, "low-score", 3, "Three canvases"), score=score)


def other_subreddit_posts(studio: Studio, count: int) -> Iterator[Post]:
    """Posts that would be kept in the right subreddit."""
    for number in range(count):
        post = dropped(studio, "other-subreddit", 2, "Two canvases")
        yield replace(post, subreddit=OTHER_SUBREDDITS[number % len(OTHER_SUBREDDITS)])


def not_album_posts(studio: Studio, count: int) -> Iterator[Post]:
    """Posts that link something else."""
    for number in range(count):
        post = dropped(studio, "not-an-album", 0, "See what I made & how")
        image, album = studio.identifiers.image(), studio.identifiers.album()
        url = NOT_ALBUMS[number % len(NOT_ALBUMS)].format(image=image, album=album)
        selftext = "How do I draw a straight line?" if "{id}" in url else ""
        yield replace(post, url=url, album=None, selftext=selftext)


def album_gone_posts(studio: Studio, count: int) -> Iterator[Post]:
    """Posts whose album answers 404, or 410, or says that it may not be used."""
    for number in range(count):
        post = dropped(studio, "album-gone", 0, "It was here")
        if post.album is not None:
            behaviour = Behaviour.GONE if number == 0 else OPTED_OUT.get(number, Behaviour.NOT_FOUND)
            post = replace(post, album=replace(post.album, behaviour=behaviour))
        yield post if number not in OPTED_OUT else replace(post, outcome=replace(post.outcome, reason="opted-out"))


def too_few_images_posts(studio: Studio, count: int) -> Iterator[Post]:
    """Posts with captions enough but one valid image or none; a third have a single medium."""
    broken = partial(failing, Behaviour.REMOVED)
    for number in range(count):
        media = studio.album_media(None, 1)
        if number % 3 != 2:
            maker = broken if number % 3 else animation
            for _ in range(2):
                stamp = studio.deck.deal(None, set(), long=True)
                media.append(Medium(image=maker(studio, stamp), description=stamp.description))
        notes = ["also-too-few-captions"] if len(media) == 1 else []
        yield draft(studio, make_album(studio, media), "Hardly any", reason="too-few-images", notes=notes)


def too_few_captions_posts(studio: Studio, count: int) -> Iterator[Post]:
    """Posts with pictures enough but at most one caption of five tokens."""
    for number in range(count):
        taken: set[str] = set()
        media = [short_medium(studio, taken, captioned=number % 4 != 3) for _ in range(3)]
        if number % 2:
            media.append(studio.medium(None, taken, long=True))
        yield draft(studio, make_album(studio, media), "Few words", reason="too-few-captions")


def short_medium(studio: Studio, taken: set[str], *, captioned: bool) -> Medium:
    """A picture with a caption of at most four tokens, or none."""
    stamp = studio.deck.deal(None, taken, short=True)
    return Medium(image=studio.paint([stamp]), description=stamp.description if captioned else None)


def too_many_images_posts(studio: Studio, donors: Sequence[Post]) -> Iterator[Post]:
    """Posts of 45 pictures each, taken from the donors' albums, with fewer captions than the limit."""
    media = [medium for post in donors if post.album is not None for medium in post.album.media]
    for start in range(0, len(media) - TOO_MANY + 1, TOO_MANY):
        chosen = media[start : start + TOO_MANY]
        shown = [medium if number % 2 else Medium(image=medium.image) for number, medium in enumerate(chosen)]
        album = make_album(studio, shown)
        yield draft(studio, album, "Forty-five canvases", reason="too-many-images", notes=["images-of-low-score-posts"])


def deleted_posts(studio: Studio, count: int) -> Iterator[Post]:
    """Posts that their authors deleted after the dump was taken."""
    for _ in range(count):
        post = dropped(studio, "deleted-by-author", 2, "No longer here")
        yield replace(post, listed=False, dump_changes={"_meta": {"was_deleted_later": True}})


MALFORMED: tuple[dict[str, Json], ...] = ({"score": None}, {"url": None}, {"score": "many"}, {"url": 17})
MALFORMED_OMISSIONS: tuple[tuple[str, ...], ...] = (("score",), ("url",), ("subreddit",))


def malformed_posts(studio: Studio) -> Iterator[Post]:
    """Dump lines that lack, or have otherwise, a field the rules need."""
    for changes in MALFORMED:
        yield replace(dropped(studio, "malformed-record", 2, "Not quite right"), listed=False, dump_changes=changes)
    for names in MALFORMED_OMISSIONS:
        yield replace(dropped(studio, "malformed-record", 2, "Not all there"), listed=False, dump_omits=names)


def long_captions(post: Post) -> int:
    """How many captions of the post's album have at least five words."""
    media = post.album.media if post.album is not None else ()
    texts = (f"{medium.title or ''} {medium.description or ''}" for medium in media)
    return sum(word_count(text) >= MIN_CAPTION_TOKENS for text in texts)


def repeated(post: Post) -> Outcome:
    """What is expected of the second line of a record that the dump has twice."""
    return replace(post.outcome, reason="duplicate-record")
