"""Makes the news archive of the recording: `python tests/replay/news_archive.py --tuxpaint DIR --out DIR`.

The folder is that of the unpacked Debian package `tuxpaint-stamps-default` (`usr/share/tuxpaint`). Every article has a
picture of two stamps, A and B, on a painted background, and the maker knows what each text is about:

    headline   A               caption   A and B
    lead       B               body      A and B, and C, which is in no picture of this article

Articles are English, German or French, in the stamps' own translations. What the archive says of a picture is English
and names B alone, so that words find some pictures for some texts. Half of the archive's words are in the pictures'
own files, as XMP. No two pictures show the same pair. Needs `resvg-py` beside the project's own dependencies.
"""

import argparse
import html
import io
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canvas import draw_canvas
from stamps import Stamp, load_stamps, render_stamp

SEED = 20_261_122
STAMPS, ARTICLES = 36, 360  # a stamp is in twenty pictures: often enough to be learnt in three languages
LANGUAGES = ("en", "de", "fr")
SPLITS = (*("train",) * 6, "val", *("test",) * 2)
QUALITY = 68
MAX_WORDS = 12  # of a stamp's description, in each language
LICENCE = "GPL-2.0-or-later"
AGENCIES = ("Harbour Press", "Agentur Nordwind", "Agence du Midi")
PLACES = ("Bristol", "Lübeck", "Nantes", "Graz", "Lausanne")
HEADLINES = {"en": "Talk of the day: {a}", "de": "Gesprächsthema: {a}", "fr": "À la une : {a}"}
LEADS = {
    "en": "In {place} people stopped to look: {b}",
    "de": "In {place} blieben die Leute stehen: {b}",
    "fr": "À {place}, les passants s'arrêtent : {b}",
}
CAPTIONS = {"en": "{a} {b}", "de": "{a} {b}", "fr": "{a} {b}"}
BODIES = {
    "en": "The paper's readers had asked for it. {a} Who came on {date} saw more. {b} Last week it was different. {c}",
    "de": "Die Leser hatten danach gefragt. {a} Wer am {date} kam, sah mehr. {b} Letzte Woche war es anders. {c}",
    "fr": "Les lecteurs le demandaient. {a} Le {date}, il y eut plus à voir. {b} La semaine passée, autre chose. {c}",
}
XMP = """<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/"
 xmlns:photoshop="http://ns.adobe.com/photoshop/1.0/" photoshop:Headline="{title}" photoshop:Credit="{credit}"
 photoshop:DateCreated="{date}" photoshop:City="{place}"><dc:subject><rdf:Bag>{keywords}</rdf:Bag></dc:subject>
</rdf:Description></rdf:RDF></x:xmpmeta>"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture of two stamps, and what the archive says of it."""

    number: int
    first: Stamp
    second: Stamp
    other: Stamp
    said: dict[str, Any]

    @property
    def name(self) -> str:
        """Its file."""
        return f"pictures/{self.number:03d}.jpg"

    @property
    def is_said_in_file(self) -> bool:
        """Whether the words are in the picture's own file, and not in the archive's record."""
        return self.number % 2 == 1


def choose_stamps(tuxpaint: Path, rng: random.Random) -> list[Stamp]:
    """Stamps with short descriptions in every language, each a different one."""
    found: dict[str, Stamp] = {}
    for stamp in load_stamps(tuxpaint):
        texts = [stamp.descriptions.get(language, "") for language in LANGUAGES]
        if all(0 < len(text.split()) <= MAX_WORDS for text in texts):
            found.setdefault(stamp.description, stamp)
    return rng.sample(list(found.values()), STAMPS)


def shown_pictures(stamps: Sequence[Stamp], rng: random.Random) -> Iterator[Shown]:
    """Pictures of pairs that are all different; each stamp comes about equally often."""
    pairs: set[frozenset[int]] = set()
    deck: list[int] = []
    while len(pairs) < ARTICLES:
        if len(deck) < 2:
            deck += rng.sample(range(len(stamps)), len(stamps))
        first, second = deck.pop(), deck.pop()
        if first == second or frozenset((first, second)) in pairs:
            continue
        other = rng.choice([number for number in range(len(stamps)) if number not in (first, second)])
        shown = stamps[second]
        said = {
            "title": sentence(shown, "en"),
            "credit": rng.choice(AGENCIES),
            "date": f"{rng.randint(2019, 2025)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
            "place": rng.choice(PLACES),
            "keywords": sorted(shown.category.split("/")),
        }
        yield Shown(len(pairs), stamps[first], shown, stamps[other], said)
        pairs.add(frozenset((first, second)))


def sentence(stamp: Stamp, language: str) -> str:
    """A stamp's description with a full stop."""
    text = stamp.descriptions[language]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def article(shown: Shown) -> dict[str, Any]:
    """The article of a picture, as the `news` data set reads it."""
    language = LANGUAGES[shown.number % len(LANGUAGES)]
    names = {"a": shown.first, "b": shown.second, "c": shown.other}
    words = {name: sentence(stamp, language) for name, stamp in names.items()}
    words |= {"place": shown.said["place"], "date": shown.said["date"]}
    forms = {"headline": HEADLINES, "lead": LEADS, "caption": CAPTIONS, "body": BODIES}
    return {
        "id": f"n-{shown.number:03d}",
        "language": language,
        **{role: form[language].format(**words) for role, form in forms.items()},
        "image": shown.name,
        "split": SPLITS[shown.number // len(LANGUAGES) % len(SPLITS)],
        "licence": LICENCE,
        **({} if shown.is_said_in_file else {"picture": shown.said}),
    }


def record(shown: Shown) -> dict[str, Any]:
    """The archive's record of a picture, as the `archive` data set reads it."""
    said = {} if shown.is_said_in_file else shown.said
    return {"id": f"p-{shown.number:03d}", "image": shown.name, "licence": LICENCE, **said}


def draw(shown: Shown, rng: random.Random) -> bytes:
    """The picture's file."""
    picture = draw_canvas([render_stamp(shown.first), render_stamp(shown.second)], rng)
    options: dict[str, Any] = {}
    if shown.is_said_in_file:
        said = {name: html.escape(str(value)) for name, value in shown.said.items()}
        said["keywords"] = "".join(f"<rdf:li>{html.escape(word)}</rdf:li>" for word in shown.said["keywords"])
        options["xmp"] = XMP.format(**said).encode()
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=QUALITY, optimize=True, **options)
    return stream.getvalue()


def write_lines(path: Path, records: Sequence[dict[str, Any]]) -> None:
    """JSON Lines."""
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in records), encoding="utf-8")


def main() -> None:
    """Write the archive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuxpaint", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rng = random.Random(SEED)
    pictures = list(shown_pictures(choose_stamps(arguments.tuxpaint, rng), rng))
    (arguments.out / "pictures").mkdir(parents=True, exist_ok=True)
    for shown in pictures:
        (arguments.out / shown.name).write_bytes(draw(shown, rng))
    write_lines(arguments.out / "articles.jsonl", [article(shown) for shown in pictures])
    write_lines(arguments.out / "archive.jsonl", [record(shown) for shown in pictures])


if __name__ == "__main__":
    main()
