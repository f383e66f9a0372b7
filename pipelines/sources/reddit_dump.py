"""Submissions of a dump file: Pushshift's and Arctic Shift's `RS_*`, one JSON object a line, .zst, .xz, .bz2 or .gz.

A month of Reddit holds tens of millions of lines of which one subreddit has a few thousand: a line is decoded only
where the subreddit's name, in quotes, is somewhere in its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pipelines.sources.lines import read_lines
from pipelines.sources.openings import BrokenInputError, Place, input_file
from pipelines.sources.reddit import Submission, parse_submission
from schemas.failures import Failure, Reason, Stage


def read_submissions(place: Place, *, subreddit: str) -> Iterator[Submission | Failure]:
    """Yield a subreddit's submissions in file order, and a failure for each record that cannot be used.

    A damaged or truncated line is a failure filed under `<file name>:<line>`, and so is a compressed stream that ends
    early; records of other subreddits pass silently. Bytes that are not UTF-8 become U+FFFD.

    Raises:
        FileNotFoundError: there is no such file.
    """
    wanted = subreddit.casefold()
    file = input_file(place)
    needle = f'"{subreddit.lower()}"'.encode()
    try:
        for number, line in read_lines(file):
            if needle in line.lower() or not line.rstrip().endswith(b"}"):
                yield from _read_line(line, f"{file.name}:{number}", wanted)
    except BrokenInputError as problem:
        yield problem.failure()


def _read_line(line: bytes, record_id: str, wanted: str) -> Iterator[Submission | Failure]:
    try:
        record = json.loads(line.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError) as error:
        message = f"expected a JSON object, found {line[:40].decode('utf-8', errors='replace')!r}: {error}"
        yield Failure(Stage.SOURCES, record_id, Reason.BROKEN_RECORD, message, type(error).__name__)
        return
    if not isinstance(record, dict):
        message = f"expected a JSON object, found {type(record).__name__}"
        yield Failure(Stage.SOURCES, record_id, Reason.BROKEN_RECORD, message)
        return
    found = record.get("subreddit")
    if isinstance(found, str) and found.casefold() != wanted:
        return
    yield parse_submission(record, record_id=record_id)
