"""Requests and replies, as the recorded hosts see them: plain values, no sockets.

`server.py` turns a connection's bytes into a `Request` and a `Reply` back into bytes; each host is a function
between the two. Standard library only.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request: host and header names in lower case, path without the query."""

    method: str
    host: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply.

    Attributes:
        body: The bytes sent at once.
        stream: More bytes, piece by piece; the connection closes at its end.
        promised_extra_bytes: By how much `Content-Length` exceeds the body; the connection then closes.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    stream: Iterator[bytes] | None = None
    promised_extra_bytes: int = 0


def text_reply(status: int, text: str, *, kind: str = "text/plain", headers: Mapping[str, str] | None = None) -> Reply:
    """A reply of UTF-8 text."""
    content_type = {"Content-Type": f"{kind}; charset=utf-8"}
    return Reply(status=status, headers={**content_type, **(headers or {})}, body=text.encode())


def json_reply(status: int, value: object, *, headers: Mapping[str, str] | None = None) -> Reply:
    """A reply of JSON."""
    return text_reply(status, json.dumps(value), kind="application/json", headers=headers)


def redirect_reply(status: int, location: str) -> Reply:
    """A redirect."""
    return text_reply(status, "", headers={"Location": location})


ORIGIN_FILES = ("/ai.txt", "/.well-known/tdmrep.json")
"""Files by which a whole host opts out."""


def robots_reply(*disallowed: str) -> Reply:
    """A robots.txt for every crawler that closes the given paths."""
    rules = "".join(f"Disallow: {path}\n" for path in disallowed) or "Disallow:\n"
    return text_reply(200, f"User-agent: *\n{rules}")
