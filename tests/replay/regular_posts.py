"""The posts that a correct build keeps without trouble: stamp albums and manual pages.

A few carry harmless peculiarities of real submissions (entities, fragments and queries in the address, missing
or null fields nobody needs), added by `with_peculiarities`. Posts that must drop are in `dropped_posts.py`;
posts with hostile images in `hostile_posts.py`.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from behaviours import PageStyle
from canvas import encode
from gimp_pages import ManualPage, load_figure
from PIL import ImageStat
from recorded import Album, Json, Medium, Outcome, Post
from stamp_albums import MIN_CAPTION_TOKENS, Studio, word_count

SUBREDDIT = "DIY"
MIN_SCORE = 25
POST_DATA_SHARE = 0.2
IMAGE_COUNTS = (6, 7, 8, 8, 8, 9, 9, 10, 10)
MANUAL_FIGURES = range(3, 9)
MAX_FIGURE_BYTES = 13_000
MIN_FIGURE_DEVIATION = 6.0


def make_album(studio: Studio, media: Sequence[Medium], title: str | None = None) -> Album:
    """An album of the media, in one of the two page styles."""
    modern = studio.rng.random() < POST_DATA_SHARE
    style = PageStyle.POST_DATA if modern else PageStyle.CONTAINERS
    return Album(id=studio.identifiers.album(), title=title, media=tuple(media), style=style)


def draft(studio: Studio, album: Album, title: str, *, reason: str | None = None, notes: Sequence[str] = ()) -> Post:
    """A post that links the album: kept when `reason` is None, with a score above the threshold."""
    images = album.valid_images
    outcome = Outcome(reason=reason, images=images, sentences=album.captions, notes=tuple(notes))
    return Post(
        id="",
        subreddit=SUBREDDIT,
        title=title,
        url=f"http://imgur.com/a/{album.id}",
        score=MIN_SCORE + int(studio.rng.paretovariate(0.8) * 4),
        created_utc=0,
        author=f"maker_{studio.rng.randrange(1000):03d}",
        outcome=outcome,
        album=album,
        num_comments=studio.rng.randrange(200),
    )


def theme_title(theme: str | None, count: int) -> str:
    """A neutral title from the folder's words."""
    subject = "Mixed stamps" if theme is None else theme.replace("/", ": ").capitalize()
    return f"{subject} on painted canvas, {count} pictures"


def stamp_posts(studio: Studio, themes: Sequence[str], count: int) -> Iterator[Post]:
    """`count` posts of stamp albums, half of them on one theme."""
    for number in range(count):
        theme = studio.rng.choice(themes) if number % 2 else None
        media = studio.album_media(theme, studio.rng.choice(IMAGE_COUNTS))
        title = theme_title(theme, len(media))
        yield draft(studio, make_album(studio, media, title), title)


def manual_posts(studio: Studio, pages: Sequence[ManualPage], count: int) -> Iterator[Post]:
    """`count` posts, each of one page of the manual."""
    made = 0
    for page in studio.rng.sample(pages, len(pages)):
        if made < count and (media := manual_media(studio, page)):
            made += 1
            yield draft(studio, make_album(studio, media, page.title), page.title)


def manual_media(studio: Studio, page: ManualPage) -> list[Medium]:
    """The page's figures that are unlike all others; nothing when too few are left."""
    if len(page.figures) not in range(MANUAL_FIGURES.start, 2 * MANUAL_FIGURES.stop):
        return []
    media: list[Medium] = []
    texts: set[str] = set()
    for figure in page.figures:
        picture = load_figure(figure)
        data = encode(picture, extension="jpg", quality=72)
        text = " ".join(filter(None, (figure.title, figure.description)))
        flat = max(ImageStat.Stat(picture).stddev) < MIN_FIGURE_DEVIATION
        if flat or len(data) > MAX_FIGURE_BYTES or (text and text in texts) or not studio.distinct.claim(picture):
            continue
        texts.add(text)
        image = studio.file(data, "jpg", picture.size)
        media.append(Medium(image=image, title=figure.title, description=figure.description))
    media = media[: MANUAL_FIGURES.stop - 1]
    long = sum(word_count(f"{medium.title or ''} {medium.description or ''}") >= MIN_CAPTION_TOKENS for medium in media)
    return media if len(media) in MANUAL_FIGURES and long >= 2 else []


PECULIAR_URLS = (
    "http://imgur.com/a/{album}#0",
    "http://imgur.com/a/{album}?gallery",
    "http://imgur.com/a/{album}/",
    "http://imgur.com/a/{album}/layout/blog",
    "http://imgur.com/a/{album}?grid&gallery",
)
PECULIAR_TITLES = (
    "Pencils & paint <first try>",
    'A "very small" pitcher & friends',
    "Größe, été, señal, 日本語: names in many tongues",
)
PECULIAR_FIELDS: tuple[dict[str, Json], ...] = (
    {"selftext": None},
    {"author": None, "num_comments": None},
    {"author": "[deleted]"},
    {"created_utc": "1403912345"},
    {"over_18": None, "media": None, "gilded": 0},
)
PECULIAR_OMISSIONS = (("num_comments",), ("selftext", "permalink"), ("name", "over_18", "author"))


def with_peculiarities(posts: Sequence[Post], rng: random.Random) -> list[Post]:
    """The same posts, some of them with a harmless peculiarity each."""
    changed = list(posts)
    kinds = len(PECULIAR_URLS) + len(PECULIAR_TITLES) + len(PECULIAR_FIELDS) + len(PECULIAR_OMISSIONS) + 2
    places = iter(rng.sample(range(len(changed)), kinds))
    for url in PECULIAR_URLS:
        place = next(places)
        album = changed[place].album
        if album is not None:
            changed[place] = replace(changed[place], url=url.format(album=album.id))
    for title in PECULIAR_TITLES:
        place = next(places)
        changed[place] = replace(changed[place], title=title)
    for fields in PECULIAR_FIELDS:
        place = next(places)
        changed[place] = replace(changed[place], dump_changes=fields)
    for names in PECULIAR_OMISSIONS:
        place = next(places)
        changed[place] = replace(changed[place], dump_omits=names)
    for change in ("repeated_in_dump", "bad_bytes_in_dump"):
        place = next(places)
        outcome = replace(changed[place].outcome, notes=(change.replace("_", "-"),))
        changed[place] = (
            replace(changed[place], repeated_in_dump=True, outcome=outcome)
            if change == "repeated_in_dump"
            else replace(changed[place], bad_bytes_in_dump=True, outcome=outcome)
        )
    return changed
