"""What the ledger knows of what is named: each build has its own addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.forgetting.holdings import find_holdings
from pipelines.forgetting.ledger import find_named, take_out, versions_without_ledger
from pipelines.ledger import VERSIONS, LedgerRow, Read, append
from pipelines.raw import RawStore, request_key
from pipelines.sources.takedowns import Takedowns, parse_takedowns
from schemas.lake import Lake
from schemas.raw import RawEntry

WEB = "https://x.example/1.jpg"


def listed(*lines: str) -> Takedowns:
    return parse_takedowns([line.encode() for line in lines], name="list")


def document(key: str, *addresses: str, sources: tuple[str, ...] = ()) -> LedgerRow:
    return LedgerRow(Read.DOCUMENT, key, None, key, None, "text", addresses, sources)


def image(letter: str, address: str) -> LedgerRow:
    return LedgerRow(Read.IMAGE, letter * 64, address)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(str(tmp_path / "lake"))


def gone(lake: Lake, *lines: str) -> set[str]:
    """Return the first letters of the hashes of the images that go."""
    return {key[0] for key in find_holdings(lake, listed(*lines)).images}


def test_one_name_in_two_folders_is_two_pictures(lake: Lake) -> None:
    append(lake.ledger("aaa", "1"), [document("X0", "0-0.png"), image("a", "0-0.png")])
    append(lake.ledger("bbb", "1"), [document("Y0", "0-0.png"), image("b", "0-0.png")])
    assert gone(lake, "id:X0") == {"a"}
    assert gone(lake, "id:Y0") == {"b"}


@pytest.mark.parametrize("address", ["0-0.png", WEB])
def test_an_address_that_gave_two_pictures_in_two_builds(lake: Lake, address: str) -> None:
    append(lake.ledger("aaa", "1"), [document("X0", address), image("a", address)])
    append(lake.ledger("aaa", "2"), [document("X0", address), image("b", address)])
    assert gone(lake, "id:X0") == {"a", "b"}


def test_what_another_document_shows_in_any_build_stays(lake: Lake) -> None:
    append(lake.ledger("aaa", "1"), [document("X0", WEB, "2.png"), image("a", WEB), image("b", "2.png")])
    append(lake.ledger("bbb", "7"), [document("Y0", "other.png"), image("a", "other.png")])
    found = find_holdings(lake, listed("id:X0"))
    assert ({key[0] for key in found.images}, {key[0] for key in found.shared}) == ({"b"}, {"a"})


def test_an_address_of_another_build_shows_nothing(lake: Lake) -> None:
    """The picture changed after the document was gone; the one of now is another document's."""
    append(lake.ledger("aaa", "1"), [document("X0", "1.png"), image("a", "1.png")])
    append(lake.ledger("aaa", "2"), [document("Y0", "1.png"), image("b", "1.png")])
    assert gone(lake, "id:X0") == {"a"}


def test_a_picture_in_a_file_goes_by_the_address_that_it_came_from(lake: Lake) -> None:
    append(lake.ledger("aaa", "1"), [document("X0", "a.tar!/1.jpg", sources=(WEB,)), image("a", "a.tar!/1.jpg")])
    assert gone(lake, WEB) == {"a"}


def test_a_page_that_was_asked_for_in_vain_is_known_by_its_record(lake: Lake) -> None:
    page, files = "https://w.example/page/Auk/html", "https://w.example/w/api.php?titles=Auk"
    asked = [LedgerRow(Read.DOCUMENT, "Auk", None, "Auk", address) for address in (page, files)]
    append(lake.ledger("wiki", "1"), asked)
    assert find_named(lake, listed("id:Auk")).pages == {page, files}
    read = LedgerRow(Read.DOCUMENT, "7", "https://w.example/wiki/Auk", "Auk", page, "text")
    append(lake.ledger("wiki", "1"), [read])
    named = find_named(lake, listed("id:7"))
    assert (named.documents, named.pages - {read.url}) == ({"7", "Auk"}, {page, files})


def test_ids_of_records_that_documents_share_name_no_other_document(lake: Lake) -> None:
    rows = [LedgerRow(Read.DOCUMENT, key, None, "13_3", None, "text", (f"{key}.png",)) for key in ("all-7", "all-8")]
    append(lake.ledger("cite", "1"), [*rows, image("a", "all-7.png"), image("b", "all-8.png")])
    assert gone(lake, "id:all-7") == {"a"}


def test_what_a_killed_build_had_captured_is_found_by_its_address(lake: Lake) -> None:
    """It had noted its documents; their pictures were in the raw store, and in no row yet."""
    append(lake.ledger("aaa", "killed"), [document("X0", WEB), document("Y0", "https://x.example/2.jpg")])
    store = RawStore(lake.raw)
    for url in (WEB, "https://x.example/2.jpg"):
        moment = "2026-01-01T00:00:00.000000Z"
        entry = RawEntry(key=request_key("image", url), kind="image", url=url, fetched_at=moment, status=200)
        store.add("web", entry, {}, url.encode())
    store.close()
    found = find_holdings(lake, listed("id:X0"))
    assert len(found.images) == 1
    assert found.addresses == {WEB}


def test_rows_and_addresses_are_taken_out(lake: Lake) -> None:
    append(lake.ledger("aaa", "1"), [document("X0", WEB), document("Z0", WEB, "2.png"), image("a", WEB)])
    append(lake.ledger("bbb", "1"), [document("Y0", "1.png"), image("b", "1.png")])
    goes = frozenset(["X0"]), frozenset(["a" * 64])
    assert take_out(lake, *goes, dry_run=True) == 2
    assert find_named(lake, listed("id:X0")).documents == {"X0"}
    assert take_out(lake, *goes, dry_run=False) == 2
    left = find_named(lake, listed("id:X0", "id:Z0", "id:Y0"))
    assert left.documents == {"Z0", "Y0"}
    assert {key[0]: places for key, places in left.shown.items()} == {"b": {"1.png"}}


def test_versions_of_builds_without_a_ledger_are_named(lake: Lake) -> None:
    for version in ("of-old", "by-version", "by-build"):
        lake.dataset("aaa", version).write("manifest.json", b"{}")
    append(lake.ledger("aaa", "by-version"), [document("X0")])
    append(lake.ledger("aaa", "0123"), [document("X0")])
    lake.ledger("aaa", VERSIONS).write("by-build", b"0123\n")
    assert versions_without_ledger(lake) == ["aaa@of-old"]
