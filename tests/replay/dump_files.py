"""Writes submissions as the dumps have them: one JSON line each, compressed three ways, with their flaws.

Addresses and titles are HTML-escaped, as in the published dumps. The flaws: blank lines, a line cut off at the
end, a title with bytes that are not UTF-8, a record repeated, and fields changed or missing as each post asks. The
`.zst` has a long window, as the real ones do: a reader must raise its limit (`max_window_size`).
"""

import bz2
import html
import io
import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import zstandard
from recorded import Json, Post

WINDOW_LOG = 28
SAMPLE_RECORDS = 40
BLANK_LINE_EVERY = 90
BAD_BYTES = b"\xff\xfe\xe9"


def dump_record(post: Post) -> dict[str, Json]:
    """The post's fields as its dump line has them."""
    fields = post.to_json()
    fields["title"] = html.escape(post.title, quote=False)
    fields["url"] = html.escape(post.url, quote=False)
    fields["retrieved_on"] = post.created_utc + 86_400
    fields.update(post.dump_changes)
    return {name: value for name, value in fields.items() if name not in post.dump_omits}


def dump_line(post: Post) -> bytes:
    """The post's line, without its end."""
    line = json.dumps(dump_record(post), ensure_ascii=False, sort_keys=True).encode()
    if post.bad_bytes_in_dump:
        line = line.replace(b'"title": "', b'"title": "' + BAD_BYTES, 1)
    return line


def dump_text(posts: Sequence[Post]) -> bytes:
    """All lines: repeated records at the end, then a line cut off."""
    lines: list[bytes] = []
    for number, post in enumerate(posts):
        if number % BLANK_LINE_EVERY == BLANK_LINE_EVERY - 1:
            lines.append(b"")
        lines.append(dump_line(post))
    lines += [dump_line(post) for post in posts if post.repeated_in_dump]
    lines.append(dump_line(posts[0])[:120])
    return b"\n".join(lines)


def compress_zst(text: bytes) -> bytes:
    """One frame of unstated size with a window of 256 MiB."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        10, window_log=WINDOW_LOG, hash_log=17, chain_log=17, write_content_size=False
    )
    target = io.BytesIO()
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    with compressor.stream_writer(target, closefd=False) as writer:
        writer.write(text)
    return target.getvalue()


def write_dumps(out: Path, posts: Sequence[Post]) -> None:
    """Write the three dump files; the `.bz2` and `.xz` hold the first records, whole."""
    sample = b"\n".join(dump_line(post) for post in posts[:SAMPLE_RECORDS]) + b"\n"
    (out / "RS_recorded.zst").write_bytes(compress_zst(dump_text(posts)))
    (out / "RS_first40.bz2").write_bytes(bz2.compress(sample))
    (out / "RS_first40.xz").write_bytes(lzma.compress(sample))
