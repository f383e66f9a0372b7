"""One parser of addresses of pictures, and what prints them."""

import pytest

from pipelines.embedded import (
    Address,
    Cell,
    FeatureRow,
    File,
    Frame,
    Record,
    Span,
    Unusable,
    Web,
    is_file_name,
    parse_address,
)
from schemas.failures import Reason

NOWHERE = Unusable(Reason.NOT_FOUND, "image: expected COLUMN/ROW or COLUMN/ROW/ITEM")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("HTTPS://h.example/a!/b.jpg", Web("HTTPS://h.example/a!/b.jpg")),
        ("a b/1.jpg", File("a b/1.jpg")),
        ("0.tar!/k/1.jpg", File("0.tar!/k/1.jpg")),
        ("0.tar!/17", File("0.tar!/17")),
        ("x.parquet!/image/12", Cell("x.parquet", "image", 12)),
        ("x.arrow!/images/12/3", Cell("x.arrow", "images", 12, 3)),
        ("x.parquet!/image", NOWHERE),
        ("c.warc.gz!/29381", Record("c.warc.gz", 29381)),
        ("c.warc!/x", Unusable(Reason.NOT_FOUND, "x: expected the first byte of a record")),
        ("k.TIFF!/2", Frame("k.TIFF", 2)),
        ("x.tar!/k!/2", Frame("x.tar!/k", 2)),
        ("x.bin!/bytes=10-19", Span("x.bin", 10, 10)),
        ("x.bin!/bytes=19-10", Span("x.bin", 19, 0)),
        ("row:17", FeatureRow(17)),
        *(
            (text, Unusable(Reason.FEATURE_MISSING, f"{text}: expected row:NUMBER"))
            for text in ("row:", "row:-1", "row:x", "row:²")
        ),
        ("unusable:not-found:a: b", Unusable(Reason.NOT_FOUND, "a: b")),
    ],
)
def test_what_an_address_says(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "address",
    [Cell("x.arrow", "a", 1), Cell("x.arrow", "a", 1, 0), Span("x", 3, 9), Unusable(Reason.TOO_LARGE, "why: so")],
)
def test_an_address_that_is_printed_is_read_again(address: Address) -> None:
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "is_name"),
    [("a.jpg", True), ("a:b.jpg", True), ("row:1", False), ("Data:x", False), ("s3://b/a", False), ("a\nb", False)],
)
def test_a_name_that_somebody_wrote_is_of_a_file(text: str, is_name: bool) -> None:
    assert is_file_name(text) is is_name
