"""Composes albums of stamp pictures: which stamps meet, and what is written under each picture.

A caption is made of the package's own descriptions and nothing else: one stamp's, or two stamps' when
two stand on the canvas. Stamps come from a deck that deals the least used first, so that each recurs a few
times, in different company and on different backgrounds.
"""

import io
import random
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from canvas import JPEG_QUALITIES, draw_canvas, encode
from distinct import DistinctPictures
from identifiers import Identifiers
from PIL import Image
from recorded import ImageFile, Medium
from stamps import Stamp, render_stamp

MIN_THEME_STAMPS = 20
MIN_CAPTION_TOKENS = 5
LONG_CAPTIONS_AN_ALBUM = 3
PAIR_SHARE = 0.4
UNCAPTIONED_SHARE = 0.08
TRANSLATED_SHARE = 0.02
TRANSLATIONS = ("de", "fr", "es", "ja", "pl", "el")
SHORT_DESCRIPTION = re.compile(r"[A-Za-z]+( [A-Za-z]+){0,2}\.?")
CONTENT_TYPES = {"jpg": "image/jpeg", "png": "image/png", "gif": "image/gif"}


def word_count(text: str) -> int:
    """Words of a text, punctuation not counted: never more than any tokeniser finds."""
    return len(re.findall(r"\w+", text))


def themes_of(stamps: Sequence[Stamp]) -> list[str]:
    """Folders, of one or two levels, with enough stamps for an album of their own."""
    counts: Counter[str] = Counter()
    for stamp in stamps:
        parts = stamp.category.split("/")
        counts.update({"/".join(parts[:depth]) for depth in (1, 2) if len(parts) >= depth})
    return sorted(folder for folder, count in counts.items() if count >= MIN_THEME_STAMPS)


class StampDeck:
    """Deals stamps, the least used first, chance deciding between equals."""

    def __init__(self, stamps: Sequence[Stamp], rng: random.Random) -> None:
        self._stamps = list(stamps)
        self._rng = rng
        self._uses: defaultdict[str, int] = defaultdict(int)

    def deal(self, theme: str | None, taken: set[str], *, long: bool = False, short: bool = False) -> Stamp:
        """A stamp of the theme whose description is not in `taken`; adds it there.

        Args:
            theme: A folder, or None for any stamp.
            taken: Descriptions already in the album.
            long: Only a stamp whose description makes a long caption by itself.
            short: Only a stamp whose description is at most three plain words.
        """
        fit = [
            stamp
            for stamp in self._stamps
            if (theme is None or f"{stamp.category}/".startswith(f"{theme}/"))
            and stamp.description not in taken
            and (not long or word_count(stamp.description) >= MIN_CAPTION_TOKENS)
            and (not short or SHORT_DESCRIPTION.fullmatch(stamp.description) is not None)
        ]
        if not fit:
            return self.deal(None, taken, long=long, short=short)
        fewest = min(self._uses[str(stamp.path)] for stamp in fit)
        stamp = self._rng.choice([stamp for stamp in fit if self._uses[str(stamp.path)] == fewest])
        self._uses[str(stamp.path)] += 1
        taken.add(stamp.description)
        return stamp


@dataclass(frozen=True, slots=True)
class Studio:
    """What every picture needs: the deck, the chance, the identifiers, the pictures so far."""

    deck: StampDeck
    rng: random.Random
    identifiers: Identifiers
    distinct: DistinctPictures

    def paint(self, stamps: Sequence[Stamp], *, extension: str = "jpg") -> ImageFile:
        """A new picture of the stamps, unlike every picture before it."""
        figures = [render_stamp(stamp) for stamp in stamps]
        while True:
            drawn = draw_canvas(figures, self.rng)
            data = encode(drawn, extension=extension, quality=self.rng.choice(JPEG_QUALITIES))
            with Image.open(io.BytesIO(data)) as reopened:
                if self.distinct.claim(reopened.convert("RGB")):
                    return self.file(data, extension, drawn.size)

    def file(self, data: bytes, extension: str, size: tuple[int, int]) -> ImageFile:
        """Encoded bytes as an image of the host."""
        return ImageFile(
            id=self.identifiers.image(),
            extension=extension,
            content_type=CONTENT_TYPES[extension],
            data=data,
            width=size[0],
            height=size[1],
        )

    def medium(self, theme: str | None, taken: set[str], *, long: bool = False, extension: str = "jpg") -> Medium:
        """A painted picture with its caption, of at least five words when `long`."""
        stamps = [self.deck.deal(theme, taken)]
        if long and word_count(stamps[0].description) < MIN_CAPTION_TOKENS:
            stamps.append(self.deck.deal(theme, taken))
            if sum(word_count(stamp.description) for stamp in stamps) < MIN_CAPTION_TOKENS:
                stamps[1] = self.deck.deal(None, taken, long=True)
        elif not long and self.rng.random() < PAIR_SHARE:
            stamps.append(self.deck.deal(theme, taken))
        title, description = self.caption(stamps)
        return Medium(image=self.paint(stamps, extension=extension), title=title, description=description)

    def caption(self, stamps: Sequence[Stamp]) -> tuple[str | None, str | None]:
        """Title and description: joined by a space they are the stamps' descriptions."""
        texts = [stamp.description for stamp in stamps]
        if len(texts) == 1:
            language = self.rng.choice(TRANSLATIONS)
            translated = stamps[0].descriptions.get(language)
            if translated is not None and self.rng.random() < TRANSLATED_SHARE:
                return texts[0], translated
            return (None, texts[0]) if self.rng.random() < 0.75 else (texts[0], None)
        choice = self.rng.random()
        if choice < 0.4:
            return texts[0], texts[1]
        if choice < 0.9:
            return None, " ".join(texts)
        return " ".join(texts), None

    def album_media(self, theme: str | None, count: int) -> list[Medium]:
        """`count` media of different things, at least three with long captions, some with none."""
        taken: set[str] = set()
        sure = set(self.rng.sample(range(count), min(LONG_CAPTIONS_AN_ALBUM, count)))
        media: list[Medium] = []
        for place in range(count):
            chance = self.rng.random()
            extension = "png" if chance < 0.006 else "gif" if chance < 0.009 else "jpg"
            medium = self.medium(theme, taken, long=place in sure, extension=extension)
            if place not in sure and self.rng.random() < UNCAPTIONED_SHARE:
                medium = Medium(image=medium.image)
            media.append(medium)
        return media
