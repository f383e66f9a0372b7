"""What an answer says against its own use, in its headers and in its page; and which of that a configuration honours.

    X-Robots-Tag: noai                                      for everyone; so is `*: noai`
    X-Robots-Tag: multilink: noindex, noimageindex          for one product; `multilink/0.1:` is the same
    X-Robots-Tag: unavailable_after: 25 Jun 2010 15:00 GMT  from then on like noindex
    <meta name="robots" content="noimageai">                the same in a page; `name="multilink"` for one product
    tdm-reservation: 1                                      W3C TDMRep, with tdm-policy: URL where there is one
    <meta name="tdm-reservation" content="1">               the same in a page, which counts first
    Content-Usage: train-ai=n                               IETF AIPREF
    Content-Signal: ai-train=no                             Cloudflare's content signals
    <meta http-equiv="X-Robots-Tag" content="noai">         any of the headers in a page

What a whole host says (robots.txt, ai.txt, tdmrep.json) is in `origin_files.py`. `noindex` counts, as for img2dataset:
a data set makes its content findable. `none` stands for noindex and nofollow. The guide lists the sources of all that
is honoured (`docs/how-to/rights.md`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from lxml import etree

from pipelines.settings import HttpConfig
from schemas.failures import Reason

ROBOTS_HEADER, TDM_HEADER, POLICY_HEADER = "x-robots-tag", "tdm-reservation", "tdm-policy"
_PAST = "unavailable_after"  # stands for a date that has passed
_AGAINST = frozenset({"noai", "noimageai", "noindex", "noimageindex", "none", _PAST})
_WITH_VALUE = frozenset({"max-snippet", "max-image-preview", "max-video-preview"})
_UNTIL = re.compile(r"unavailable_after\s*:\s*((?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,)?[^,\n]*)", re.IGNORECASE)
# Headers of preferences, and the uses in them that a data set for training is.
USAGES = {"content-usage": ("train-ai", "bots"), "content-signal": ("ai-train",)}
_DENIALS = frozenset({"n", "no", "?0"})
_READ_BYTES = 1 << 20  # of a page
_META = re.compile(rb"<meta\s[^>]{1,2000}>", re.IGNORECASE)
_SHOWN = 200  # characters of an opt-out
# Which setting of `http` honours what.
SETTINGS = {
    Reason.ROBOTS_TAG: "obey_robots_tags",
    Reason.ROBOTS_META: "obey_robots_tags",
    Reason.TDM_RESERVED: "obey_tdm",
    Reason.AI_TXT_DENIED: "obey_ai_txt",
    Reason.USAGE_DENIED: "obey_content_usage",
}


@dataclass(frozen=True, slots=True)
class OptOut:
    """One opt-out: a failure's reason, and its own words."""

    reason: Reason
    words: str

    def __str__(self) -> str:
        return f"{self.reason} {self.words}"

    @classmethod
    def parse(cls, line: str) -> OptOut:
        """Return what `str` gave."""
        reason, _, words = line.partition(" ")
        return cls(Reason(reason), words)


def read_opt_outs(headers: Mapping[str, str], page: bytes, *, product: str, now: float) -> list[OptOut]:
    """Return everything that an answer says against its use.

    Args:
        headers: names in lower case; of a header that was sent several times, the values in a line each.
        page: its HTML; empty of anything else.
        product: token of the crawler, such as `multilink`.
        now: POSIX time.
    """
    named = dict[str, list[str]]()
    for name, content in _metas(page):
        named.setdefault(name, []).append(content)
    by_header = _against(headers.get(ROBOTS_HEADER, ""), product, now)
    lines = [line for name in ("robots", product.lower(), ROBOTS_HEADER) for line in named.get(name, ())]
    by_page = _against("\n".join(lines), product, now)
    found = [OptOut(Reason.ROBOTS_TAG, f"X-Robots-Tag: {', '.join(by_header)}")] if by_header else []
    found += [OptOut(Reason.ROBOTS_META, f"its meta element has {', '.join(by_page)}")] if by_page else []
    in_page = TDM_HEADER in named
    reservation = named[TDM_HEADER][-1] if in_page else headers.get(TDM_HEADER, "")
    policy = named.get(POLICY_HEADER, [""])[-1] if in_page else headers.get(POLICY_HEADER, "")
    if is_reservation(reservation.strip()):
        where = "its meta element" if in_page else "its header"
        found.append(OptOut(Reason.TDM_RESERVED, f"{where} has tdm-reservation 1{policy_words(policy)}"))
    for name in USAGES:
        value = "\n".join([headers.get(name, ""), *named.get(name, ())])
        if denies(name, value):
            found.append(OptOut(Reason.USAGE_DENIED, f"{name}: {' '.join(value.split())[:_SHOWN]}"))
    return found


def is_reservation(value: object) -> bool:
    """Return whether a value of `tdm-reservation` reserves rights: 1, or what is meant for it."""
    return str(value).lower() in ("1", "true")


def mentions(name: str, text: str) -> dict[str, str]:
    """Return the preferences in a value of one of `USAGES` that concern training, each with what it says."""
    pairs = (part.partition(";")[0].partition("=") for part in re.split("[,\n]", text.lower()))
    return {use.strip(): value.strip() for use, _, value in pairs if use.strip() in USAGES[name]}


def denies(name: str, text: str) -> bool:
    """Return whether a value of one of `USAGES` says no to training; of several that differ, no counts."""
    return any(not _DENIALS.isdisjoint(mentions(name, line).values()) for line in text.splitlines())


def honoured(found: list[OptOut], config: HttpConfig) -> OptOut | None:
    """Return the first opt-out that a configuration honours, None where there is none."""
    return next((each for each in found if getattr(config, SETTINGS[each.reason])), None)


def refusal(headers: Mapping[str, str], page: bytes, config: HttpConfig, *, now: float) -> OptOut | None:
    """Return what an answer says against its use and the configuration honours: for answers that others captured.

    Arguments as of `read_opt_outs`.
    """
    return honoured(read_opt_outs(headers, page, product=config.product, now=now), config)


def policy_words(policy: object) -> str:
    """Return how a message names the policy of a reservation."""
    return f", policy {' '.join(policy.split())[:_SHOWN]}" if isinstance(policy, str) and policy.strip() else ""


def product_of(agent: str) -> str:
    """Return the product token of a user agent in lower case (RFC 9309 2.2.1): what stands before a version."""
    return agent.strip().lower().partition("/")[0].partition(" ")[0]


def _against(text: str, product: str, now: float) -> list[str]:
    """Return the directives against use in a line or more of `[product:] directive, ...`, each once."""
    current = _UNTIL.sub(lambda found: _PAST if _is_past(found[1], now) else "", text)
    return sorted(_AGAINST.intersection(_directives(current, product.lower())))


def _directives(text: str, product: str) -> Iterator[str]:
    for line in text.lower().splitlines():
        is_for_us = True
        for part in line.split(","):
            name, colon, rest = part.partition(":")
            if colon and name.strip() not in _WITH_VALUE:
                is_for_us, part = product_of(name) in (product, "*"), rest  # noqa: PLW2901
            if is_for_us:
                yield part.strip()


def _is_past(date: str, now: float) -> bool:
    """Return whether a date has passed, in any form that RFC 9110 5.6.7 or ISO 8601 has; what is no date has not."""
    text = date.strip()
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = parse(text.upper())
        except (ValueError, TypeError, OverflowError):
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() <= now
    return False


def _metas(page: bytes) -> Iterator[tuple[str, str]]:
    """Yield the name, in lower case, and the content of each `meta` element of a page; comments are none."""
    first, *others = page[:_READ_BYTES].split(b"<!--")
    shown = first + b"".join(part.partition(b"-->")[2] for part in others)
    text = b"".join(_META.findall(shown)).decode("utf-8", "replace").replace("\0", "\ufffd")
    tree = etree.fromstring(f"<head>{text}".encode(), etree.HTMLParser(encoding="utf-8"))
    for meta in tree.iter("meta"):
        if name := meta.get("name") or meta.get("http-equiv"):
            yield name.strip().lower(), meta.get("content") or ""
