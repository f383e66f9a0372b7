"""Lines of a text file that may be compressed, damaged, cut short, or not quite UTF-8.

For JSON Lines of any size: nothing but one piece and one line is in memory. A file that ends early gives the lines
before its end and then raises `BrokenInputError`, its place being `<file name>:<line>`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.sources.openings import BrokenInputError, Place, input_file

MAX_LINE_BYTES = 64 * 2**20  # a line this long is no record: the file has lost its line breaks


def read_lines(place: Place) -> Iterator[tuple[int, bytes]]:
    """Yield the number (from 1) and bytes of each line that is not blank, without its line break.

    Raises:
        BrokenInputError: the rest of the file cannot be read; lines yielded before stay good.
        FileNotFoundError: there is no such file.
    """
    file = input_file(place)
    number = 0
    rest = b""
    pieces = file.pieces()
    while True:
        try:
            piece = next(pieces, None)
        except BrokenInputError as problem:
            raise BrokenInputError(str(problem), f"{file.name}:{number + 1}") from problem.__cause__
        *lines, rest = (rest + piece).split(b"\n") if piece is not None else (rest, b"")
        for line in lines:
            number += 1
            if line.strip():
                yield number, line.rstrip(b"\r")
        if piece is None:
            return
        if len(rest) > MAX_LINE_BYTES:
            message = f"{file.name}: a line of more than {MAX_LINE_BYTES} bytes"
            raise BrokenInputError(message, f"{file.name}:{number + 1}")
