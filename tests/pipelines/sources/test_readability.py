"""The reader of HTML beside mozilla/readability, on the pages of its own tests (READABILITY_PAGES: test/test-pages)."""

import os
import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from lxml import html

from pipelines.sources.dom import is_stand_in
from pipelines.sources.html import PagePicture, read_page

PAGES = os.environ.get("READABILITY_PAGES", "")
URL = "http://fakehost/test/page.html"
_FORMULA = re.compile(r"/math/|latex|mathjax|\.svg", re.IGNORECASE)
_ENDING = re.compile(r"\.(jpe?g|png|gif|webp|avif|bmp|svg)(?:$|[?#/!:&;])", re.IGNORECASE)
_OF_SET = re.compile(r"(\S+)\s+[\d.]+[wx]")


@pytest.mark.trial
@pytest.mark.skipif(not PAGES, reason="READABILITY_PAGES names no folder of readability's test pages")
def test_the_pictures_that_readability_keeps_are_kept() -> None:
    """At least 95 of 100; formulas, pictures without an ending and stand-ins are counted apart."""
    kept = dict.fromkeys(("picture", "formula", "no ending", "stand-in"), (0, 0))
    others = stand_ins = 0
    for folder in sorted(path for path in Path(PAGES).iterdir() if path.is_dir()):
        page = read_page((folder / "source.html").read_bytes(), URL)
        pictures = [piece for piece in page.pieces if isinstance(piece, PagePicture)]
        stand_ins += sum(is_stand_in(picture.addresses[0]) for picture in pictures)
        found = {address for picture in pictures for address in picture.addresses}
        wanted = list(expected((folder / "expected.html").read_text(encoding="utf-8")))
        for addresses in wanted:
            kind = kind_of(addresses)
            kept[kind] = kept[kind][0] + bool(found & addresses), kept[kind][1] + 1
        others += sum(not any(set(picture.addresses) & addresses for addresses in wanted) for picture in pictures)
    print(", ".join(f"{kind}: {count} of {total}" for kind, (count, total) in kept.items()), "; others:", others)
    assert stand_ins == 0
    assert kept["picture"][0] >= 0.95 * kept["picture"][1] > 400


def expected(page: str) -> list[set[str]]:
    """Return the addresses of each image of readability's result."""
    images = html.fromstring(page or "<p></p>").iter("img")
    sets = ([image.get("src") or "", *_OF_SET.findall(image.get("srcset") or "")] for image in images)
    return [{urljoin(URL, each.strip()) for each in addresses if each.strip()} for addresses in sets if any(addresses)]


def kind_of(addresses: set[str]) -> str:
    if any(map(_FORMULA.search, addresses)):
        return "formula"
    if not any(map(_ENDING.search, addresses)):
        return "no ending"
    return "stand-in" if all(map(is_stand_in, addresses)) else "picture"
