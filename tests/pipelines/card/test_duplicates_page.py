"""The page of duplicates: what it shows, what it leaves out and says so, and that it needs nothing else."""

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from pipelines.card import duplicates_page as page
from pipelines.card.duplicates_page import write_duplicates_page
from schemas.duplicates import DUPLICATE_SCHEMA, Duplicate, duplicate_row
from schemas.tables import to_table


class Elements(HTMLParser):
    """Collects (tag, attributes), the text, and that every element is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in {"meta", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def jpeg() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(out, "JPEG")
    return out.getvalue()


def write(tmp_path: Path, *duplicates: Duplicate, picture: bytes | None = None) -> Elements:
    rows = to_table((duplicate_row(duplicate) for duplicate in duplicates), DUPLICATE_SCHEMA)
    path = write_duplicates_page(rows, lambda _: picture, tmp_path / "out" / "duplicates.html")
    assert path == tmp_path / "out" / "duplicates.html"
    assert [file.name for file in path.parent.iterdir()] == ["duplicates.html"]
    elements = Elements(path.read_text(encoding="utf-8"))
    assert elements.open == []
    return elements


def many(clusters: int, images: int, places: int) -> list[Duplicate]:
    return [
        Duplicate(f"c{c:03}", f"d{p}", i, f"c{c:03}-i{i:03}", f"c{c:03}-i000", 0, False)
        for c in range(clusters)
        for i in range(images)
        for p in range(places)
    ]


def test_a_cluster_shows_places_distances_and_fates(tmp_path: Path) -> None:
    shown = write(
        tmp_path,
        Duplicate("aaa", "d1", 0, "aaa", "bbb", 2, True),
        Duplicate("aaa", "d2", 3, "bbb", "aaa", 2, False),
        picture=jpeg(),
    )
    assert "2 occurrences of 2 images in 2 documents make 1 clusters; 1 documents are dropped." in shown.text
    assert "d1, position 0: dropped" in shown.text
    assert "d2, position 3: kept" in shown.text
    assert "distance 2 from bbb" in shown.text
    sources = [attributes["src"] for tag, attributes in shown.found if tag == "img"]
    assert len(sources) == 2
    kind, _, data = str(sources[0]).partition(";base64,")
    assert (kind, base64.b64decode(data)) == ("data:image/jpeg", jpeg())


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    shown = write(tmp_path, *many(2, 2, 2), picture=jpeg())
    assert {tag for tag, _ in shown.found}.isdisjoint({"script", "link", "iframe"})
    assert all(str(a.get("src", "data:")).startswith("data:") and "href" not in a for _, a in shown.found)
    assert not re.search(r"https?://|@import|url\(", (tmp_path / "out" / "duplicates.html").read_text())


def test_what_the_data_says_is_escaped(tmp_path: Path) -> None:
    evil = '"><script>alert(1)</script>'
    shown = write(tmp_path, *(Duplicate(evil, evil, place, evil, evil, 0, True) for place in (0, 1)))
    assert "script" not in {tag for tag, _ in shown.found}
    assert evil in shown.text
    assert "no picture kept" in shown.text


def test_a_large_data_set_is_cut_and_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("MAX_CLUSTERS", 2), ("MAX_PICTURES", 3), ("MAX_PLACES", 4)):
        monkeypatch.setattr(page, name, limit)
    shown = write(tmp_path, *many(3, 5, 6), *many(1, 1, 7))
    tags = [tag for tag, _ in shown.found]
    assert (tags.count("section"), tags.count("figure"), tags.count("li")) == (2, 2 * 3, 2 * 3 * 4)
    assert "Only the 2 clusters with most occurrences are shown, of 3." in shown.text
    assert "2 more images of this cluster are not shown." in shown.text
    assert "and 9 more places" in shown.text  # the first image of the first cluster: 6 + 7 of them, 4 shown
    assert shown.text.index("c000") < shown.text.index("c001")


def test_no_duplicates_give_a_page(tmp_path: Path) -> None:
    assert "0 occurrences of 0 images" in write(tmp_path).text
