"""What an answer says against its own use, in its headers and in its page; and which of that a configuration honours.

    X-Robots-Tag: noai                                      for everyone
    X-Robots-Tag: multilink: noindex, noimageindex          for one product
    <meta name="robots" content="noimageai">                the same in a page; `name="multilink"` for one product
    tdm-reservation: 1                                      W3C TDMRep, with tdm-policy: URL where there is one
    <meta name="tdm-reservation" content="1">               the same in a page, which counts first

What a whole host says (robots.txt, ai.txt, tdmrep.json) is in `origin_files.py`. `noindex` counts, as for img2dataset:
a data set makes its content findable. `none` stands for noindex and nofollow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser

from pipelines.settings import HttpConfig
from schemas.failures import Reason

ROBOTS_HEADER, TDM_HEADER, POLICY_HEADER = "x-robots-tag", "tdm-reservation", "tdm-policy"
_AGAINST = frozenset({"noai", "noimageai", "noindex", "noimageindex", "none"})
_WITH_VALUE = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_READ_BYTES = 1 << 20  # of a page
_META = re.compile(rb"<meta\s[^>]{1,2000}>", re.IGNORECASE)
_SHOWN = 200  # characters of what was said
# Which setting of `http` honours what.
SETTINGS = {
    Reason.ROBOTS_TAG: "obey_robots_tags",
    Reason.ROBOTS_META: "obey_robots_tags",
    Reason.TDM_RESERVED: "obey_tdm",
    Reason.AI_TXT_DENIED: "obey_ai_txt",
}


@dataclass(frozen=True, slots=True)
class OptOut:
    """One thing that was said, as a failure's reason, and in its own words."""

    reason: Reason
    words: str

    def __str__(self) -> str:
        return f"{self.reason} {self.words}"

    @classmethod
    def parse(cls, line: str) -> OptOut:
        """Return what `str` gave."""
        reason, _, words = line.partition(" ")
        return cls(Reason(reason), words)


def read_opt_outs(headers: Mapping[str, str], page: bytes, *, product: str) -> list[OptOut]:
    """Return everything that an answer says against its use.

    Args:
        headers: names in lower case; of a header that was sent several times, the values in a line each.
        page: its HTML; empty of anything else.
        product: token of the crawler, such as `multilink`.
    """
    named = dict[str, list[str]]()
    for name, content in _metas(page):
        named.setdefault(name, []).append(content)
    by_header = _against(headers.get(ROBOTS_HEADER, ""), product)
    by_page = [
        each for name in ("robots", product.lower()) for each in _against("\n".join(named.get(name, ())), product)
    ]
    found = [OptOut(Reason.ROBOTS_TAG, f"X-Robots-Tag: {', '.join(by_header)}")] if by_header else []
    found += [OptOut(Reason.ROBOTS_META, f"its meta element says {', '.join(by_page)}")] if by_page else []
    in_page = TDM_HEADER in named
    reservation = named[TDM_HEADER][-1] if in_page else headers.get(TDM_HEADER, "")
    policy = named.get(POLICY_HEADER, [""])[-1] if in_page else headers.get(POLICY_HEADER, "")
    if reservation.strip() == "1":
        where = "its meta element" if in_page else "its header"
        found.append(OptOut(Reason.TDM_RESERVED, f"{where} says tdm-reservation 1{policy_words(policy)}"))
    return found


def honoured(found: list[OptOut], config: HttpConfig) -> OptOut | None:
    """Return the first of what was said that a configuration honours, None where there is none."""
    return next((each for each in found if getattr(config, SETTINGS[each.reason])), None)


def refusal(headers: Mapping[str, str], page: bytes, config: HttpConfig) -> OptOut | None:
    """Return what an answer says against its use and the configuration honours: for answers that others captured.

    Arguments as of `read_opt_outs`.
    """
    return honoured(read_opt_outs(headers, page, product=config.product), config)


def policy_words(policy: object) -> str:
    """Return how a message names the policy of a reservation."""
    return f", policy {' '.join(policy.split())[:_SHOWN]}" if isinstance(policy, str) and policy.strip() else ""


def _against(text: str, product: str) -> list[str]:
    """Return the directives against use in a line or more of `[product:] directive, ...`, each once."""
    return sorted(_AGAINST.intersection(_directives(text, product.lower())))


def _directives(text: str, product: str) -> Iterator[str]:
    for line in text.lower().splitlines():
        is_for_us = True
        for part in line.split(","):
            name, colon, rest = part.partition(":")
            if colon and name.strip() not in _WITH_VALUE:
                is_for_us, part = name.strip() == product, rest  # noqa: PLW2901
            if is_for_us:
                yield part.strip()


def _metas(page: bytes) -> Iterator[tuple[str, str]]:
    """Yield the name, in lower case, and the content of each `meta` element of a page; comments are none."""
    first, *others = page[:_READ_BYTES].split(b"<!--")
    shown = first + b"".join(part.partition(b"-->")[2] for part in others)
    parser = _MetaParser()
    parser.feed(b"".join(_META.findall(shown)).decode("utf-8", "replace"))
    yield from parser.found


class _MetaParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        if tag == "meta" and "name" in said:
            self.found.append((said["name"].strip().lower(), said.get("content", "")))

    handle_startendtag = handle_starttag
