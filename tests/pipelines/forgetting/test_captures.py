"""Captures of what is forgotten, found by their text."""

from pathlib import Path

import pytest

from pipelines.forgetting.captures import Marks, Removal, remove_captures
from pipelines.raw import RawStore, request_key
from pipelines.sources.takedowns import parse_takedowns
from schemas.lake import Folder
from schemas.raw import RawEntry

SHARED = "Now we drill a hole in the wall."
LONG = [f"Step {number} of this bench takes the board with number {number} and a saw." for number in range(6)]


@pytest.mark.parametrize(
    ("text", "page", "goes"),
    [
        ([SHARED], f"A page of another author. {SHARED} It goes on.", False),
        ([SHARED], SHARED, False),
        (LONG, f"A page of another author. {LONG[0]} {SHARED}", False),
        (LONG, f"The page at another address. {' '.join(LONG)}", True),
    ],
)
def test_a_page_goes_by_a_long_text_that_it_holds_and_by_no_phrase(
    text: list[str], page: str, goes: bool, tmp_path: Path
) -> None:
    raw, url = Folder(str(tmp_path / "raw")), "http://a.example/page"
    store = RawStore(raw)
    entry = RawEntry(
        key=request_key("page", url),
        kind="page",
        url=url,
        fetched_at="2026-01-01T00:00:00.000000Z",
        final_url=url,
        status=200,
        media_type="text/html",
    )
    store.add("web", entry, {"content-type": "text/html"}, f"<p>{page}</p>".encode())
    store.close()
    marks = Marks(parse_takedowns([b"id:a"], name="list"), frozenset(), frozenset(), [text])
    assert list(remove_captures(raw, marks, dry_run=True)) == ([Removal("web", 1, 0)] if goes else [])
