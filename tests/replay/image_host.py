"""i.imgur.com: image files with their headers, and every way in which they may fail to come.

One method a behaviour of `behaviours.py`. The placeholder of deleted images is served here too.
Standard library only.
"""

import hashlib
import itertools
import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from behaviours import Behaviour
from replies import Reply, Request, redirect_reply, robots_reply, text_reply

PLACEHOLDER = "removed.png"
PLACEHOLDER_ADDRESS = f"http://i.imgur.com/{PLACEHOLDER}"
SILENCE_S = 0.5
TRICKLE_INTERVAL_S = 0.2
EXTRA_BYTES = 1000
MIN_MP4 = b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom"
"""An ISO media file's first box and nothing else: animations are listed as video, never needed."""


class ImageHost:
    """Serves `images.json` and the files beside it."""

    def __init__(self, recording: Path, *, closing: threading.Event) -> None:
        self._folder = recording / "images"
        self._entries: dict[str, dict[str, str]] = json.loads((recording / "images.json").read_text(encoding="utf-8"))
        self._closing = closing
        self._asked: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

    def knows(self, path: str) -> bool:
        """Whether the path names a recorded image."""
        return path == f"/{PLACEHOLDER}" or split_path(path)[0] in self._entries

    def answer(self, request: Request) -> Reply:
        """The image, or what its behaviour says."""
        if request.path == "/robots.txt":
            return robots_reply()
        if request.path == f"/{PLACEHOLDER}":
            return self._file(request, PLACEHOLDER, "image/png")
        identifier, extension = split_path(request.path)
        entry = self._entries.get(identifier)
        if entry is None:
            return redirect_reply(302, PLACEHOLDER_ADDRESS)
        return self._behave(request, identifier, extension, entry)

    def _behave(self, request: Request, identifier: str, extension: str, entry: dict[str, str]) -> Reply:
        match Behaviour(entry.get("behaviour", "serve")):
            case Behaviour.REMOVED:
                return redirect_reply(302, PLACEHOLDER_ADDRESS)
            case Behaviour.REDIRECT:
                return redirect_reply(302, entry["location"])
            case Behaviour.OPTED_OUT:
                reply = self._file(request, PLACEHOLDER, "image/png")
                return replace(reply, headers={**reply.headers, "X-Robots-Tag": "noai, noimageai"})
            case Behaviour.NOT_FOUND:
                return text_reply(404, "not found\n")
            case Behaviour.GONE:
                return text_reply(410, "gone\n")
            case Behaviour.BUSY_FIRST if next(self._asked[identifier]) == 0:
                return text_reply(429, "slow down\n", headers={"Retry-After": "1"})
            case Behaviour.UNAVAILABLE_FIRST if next(self._asked[identifier]) == 0:
                return text_reply(503, "over capacity\n")
            case Behaviour.SLOW:
                self._closing.wait(SILENCE_S)
            case Behaviour.TRICKLE:
                body = (self._folder / entry["file"]).read_bytes()
                return Reply(status=200, headers={"Content-Type": entry["type"]}, stream=self._trickle(body))
            case Behaviour.SHORT_BODY:
                body = (self._folder / entry["file"]).read_bytes()
                headers = {"Content-Type": entry["type"]}
                return Reply(status=200, headers=headers, body=body[:-10], promised_extra_bytes=EXTRA_BYTES)
        recorded = entry["file"].rpartition(".")[2]
        if extension == "jpeg" and recorded == "jpg":
            return redirect_reply(301, f"http://i.imgur.com/{entry['file']}")
        if extension == "mp4" and recorded == "gif":
            return Reply(status=200, headers={"Content-Type": "video/mp4"}, body=MIN_MP4)
        return self._file(request, entry["file"], entry["type"])

    def _file(self, request: Request, name: str, content_type: str) -> Reply:
        body = (self._folder / name).read_bytes()
        tag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
        headers = {"Content-Type": content_type, "ETag": tag, "Cache-Control": "public, max-age=31536000"}
        if request.headers.get("if-none-match") == tag:
            return Reply(status=304, headers=headers)
        return Reply(status=200, headers=headers, body=body)

    def _trickle(self, body: bytes) -> Iterator[bytes]:
        position = 0
        while not self._closing.wait(TRICKLE_INTERVAL_S):
            yield body[position % len(body) :][:1]
            position += 1


def split_path(path: str) -> tuple[str, str]:
    """Identifier and extension of an image's path; empty when it is not one."""
    found = re.fullmatch(r"/(\w{7,})\.(\w+)", path)
    return (found[1], found[2].lower()) if found else ("", "")
