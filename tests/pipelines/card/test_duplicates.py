"""The page of duplicates: what it shows, what it leaves out and says so, and that it needs nothing else."""

import base64
import hashlib
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from pipelines.card import duplicates as page
from pipelines.card.duplicates import duplicates_page
from pipelines.images.inspect import ROWS_PER_GROUP
from pipelines.packs import PackFolder
from schemas.documents import COPY_SCHEMA
from schemas.duplicates import DUPLICATE_SCHEMA, Duplicate
from schemas.lake import Lake
from schemas.tables import row_of, to_table


class Elements(HTMLParser):
    """Collects (tag, attributes), the text, and that every element is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.html = html
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


def shown(tmp_path: Path, *duplicates: Duplicate, picture: bytes | None = None) -> Elements:
    """Return the page of some duplicates, whose pictures are in a lake's packs."""
    lake = Lake.at(str(tmp_path))
    if picture is not None:
        hashes = sorted({duplicate.image for duplicate in duplicates})
        for half, method in enumerate(("old", "new")):  # copies by different settings
            mine = hashes[half::2]
            empty = {name: [None] * len(mine) for name in COPY_SCHEMA.names}
            columns = {"hash": mine, "is_flat": [False] * len(mine), "jpeg": [picture] * len(mine)}
            writer = PackFolder(lake.images.child(method), COPY_SCHEMA, "hash", ROWS_PER_GROUP).writer()
            writer.add(empty | columns)
            writer.close()
    rows = to_table((row_of(duplicate) for duplicate in duplicates), DUPLICATE_SCHEMA)
    elements = Elements(duplicates_page(rows, lake, title="diy@v1"))
    assert elements.open == []
    elements.text = " ".join(elements.text.split())
    return elements


def digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


ONE, OTHER = sorted([digest("one"), digest("other")])


def many(clusters: int, images: int, occurrences: int) -> list[Duplicate]:
    return [
        Duplicate(f"c{c:03}", f"d{o}", i, digest(f"{c}/{i}"), digest(f"{c}/0"), 0, False)
        for c in range(clusters)
        for i in range(images)
        for o in range(occurrences)
    ]


def test_a_cluster_shows_documents_distances_and_fates(tmp_path: Path) -> None:
    found = shown(
        tmp_path,
        Duplicate(ONE, "d1", 0, ONE, OTHER, 2, True),
        Duplicate(ONE, "d2", 3, OTHER, ONE, 1, False),
        picture=jpeg(),
    )
    assert "2 occurrences of 2 images in 2 documents make 1 cluster; 1 document is dropped." in found.text
    assert "d1, image 0: dropped" in found.text
    assert "d2, image 3: kept" in found.text
    assert f"2 bits from {OTHER[:12]}" in found.text
    assert f"1 bit from {ONE[:12]}" in found.text
    assert ONE not in found.text  # short in what is read, whole in a title
    assert [attributes["title"] for tag, attributes in found.found if tag == "code"][:2] == [ONE, ONE]
    sources = [str(attributes["src"]) for tag, attributes in found.found if tag == "img"]
    assert len(sources) == 2
    kind, _, data = sources[0].partition(";base64,")
    assert (kind, base64.b64decode(data)) == ("data:image/jpeg", jpeg())


def test_one_image_that_occurs_twice_is_one_image(tmp_path: Path) -> None:
    found = shown(tmp_path, *(Duplicate(ONE, f"d{number}", 0, ONE, ONE, 0, False) for number in range(2)))
    assert "2 occurrences of 1 image in 2 documents make 1 cluster; 0 documents are dropped." in found.text
    assert f"{ONE[:12]} occurs again" in found.text
    assert "no picture kept" in found.text


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    found = shown(tmp_path, *many(2, 2, 2), picture=jpeg())
    assert {tag for tag, _ in found.found}.isdisjoint({"script", "link", "iframe"})
    assert all(str(a.get("src", "data:")).startswith("data:") and "href" not in a for _, a in found.found)
    assert not re.search(r"https?://|@import|url\(", found.html)


def test_what_the_data_says_is_escaped(tmp_path: Path) -> None:
    evil = '"><script>alert(1)</script>'
    found = shown(tmp_path, *(Duplicate(evil, evil, position, evil, evil, 0, True) for position in (0, 1)))
    assert "script" not in {tag for tag, _ in found.found}
    assert evil in found.text


def test_a_large_data_set_is_cut_and_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("MAX_CLUSTERS", 2), ("MAX_IMAGES", 3), ("MAX_OCCURRENCES", 4)):
        monkeypatch.setattr(page, name, limit)
    found = shown(tmp_path, *many(3, 5, 6))
    tags = [tag for tag, _ in found.found]
    assert (tags.count("section"), tags.count("figure"), tags.count("li")) == (2, 2 * 3, 2 * 3 * 4)
    assert "Shown: the 2 clusters with most occurrences, of 3." in found.text
    assert "2 more images of this cluster are not shown." in found.text
    assert "and 2 more occurrences" in found.text
    assert found.text.index("c000") < found.text.index("c001")


def test_no_duplicates_give_a_page(tmp_path: Path) -> None:
    assert "0 occurrences of 0 images in 0 documents make 0 clusters" in shown(tmp_path).text
