"""What a whole host allows: its robots.txt, ai.txt and tdmrep.json, each read once a day for an origin.

    /robots.txt                  RFC 9309, rules parsed and matched by Protego; with Content-Usage (IETF AIPREF) and
                                 Content-Signal (Cloudflare), which say what may be used for training
    /ai.txt                      Spawning's, in the same form: what may be used for training
    /.well-known/tdmrep.json     W3C TDMRep: rights reserved against text and data mining, by patterns of paths

All that are honoured are read before anything else of the origin is asked for. One that is not there (a 4xx) says
nothing. A robots.txt that cannot be read (a 5xx, no connection) allows nothing until it can, as RFC 9309 asks; the
other two then say nothing, as TDMRep asks, and are tried again some minutes later. What a file reserves is not asked
for, so a header of TDMRep that would release it is not seen.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import unquote_to_bytes

from protego import Protego

from pipelines.settings import HttpConfig
from pipelines.web.hosts import Pace
from pipelines.web.opt_outs import USAGES, denies, is_reservation, mentions, policy_words, product_of
from pipelines.web.requests import LONGEST_WAIT_S, TOO_MANY_REQUESTS, FetchFailed, Kind, Target
from schemas.failures import Reason

FRESH_S = 86_400.0  # RFC 9309 2.4
_RETRY_S = 300.0  # a file that could not be read is not tried again for so long
_PARSED_BYTES = 512_000  # RFC 9309 2.5: at least 500 KiB
_MOST_RULES = 5_000  # of a tdmrep.json, and lines of a group that may be preferences
_MOST_ORIGINS = 4_096  # whose file is kept parsed, some 12 kB each
_LOCKS = 1_024
_SHOWN = 200  # characters of a preference
_USER_AGENT = re.compile(r"user[- ]?agent\s*[:\s]\s*(.*)", re.IGNORECASE)
_OF_SITE = frozenset({"sitemap", "sitemaps", "site-map", "host"})  # lines that are in no group
T = TypeVar("T")
Read = Callable[[str, Kind], bytes]  # returns the body behind a URL


class OriginFiles:
    """What the files of origins say to one product; thread-safe. Those of the origins met last are kept parsed."""

    def __init__(self, read: Read, config: HttpConfig, pace: Pace, *, clock: Callable[[], float]) -> None:
        self._config = config
        self._pace = pace
        rest: dict[str, Any] = {"attempts": config.attempts, "clock": clock}
        parse = partial(parse_robots, product=config.product)
        self._robots = _File("/robots.txt", Kind.ROBOTS, parse, read, is_binding=True, **rest)
        self._ai = _File("/ai.txt", Kind.WELL_KNOWN, parse, read, **rest)
        self._tdm = _File("/.well-known/tdmrep.json", Kind.WELL_KNOWN, parse_tdm, read, **rest)

    def check(self, target: Target) -> None:
        """Raise unless an origin allows a request; from then on its host is asked at the pace that it wishes.

        Raises:
            FetchFailed: ROBOTS_DENIED: robots.txt says no (or wants a delay too long to wait); USAGE_DENIED;
                AI_TXT_DENIED; TDM_RESERVED; any other reason: robots.txt could not be read, and why.
        """
        config, origin = self._config, target.origin
        path = target.url[len(origin) :]
        if config.obey_robots and (robots := self._robots.of(origin)) is not None:
            if not robots.rules.can_fetch(target.url, "*"):
                message = f"{origin}/robots.txt disallows {target.url} to {config.product}"
                raise FetchFailed(Reason.ROBOTS_DENIED, message)
            if config.obey_content_usage and (denied := robots.denied(path)):
                raise FetchFailed(Reason.USAGE_DENIED, f"{origin}/robots.txt says {denied}: {target.url}")
            delay_s = robots.rules.crawl_delay("*") or 0.0
            if delay_s > LONGEST_WAIT_S:
                message = f"{origin}/robots.txt wants {delay_s:g} s between requests, over {LONGEST_WAIT_S:g}"
                raise FetchFailed(Reason.ROBOTS_DENIED, message)
            self._pace.slow_to(target.host, delay_s)
        allowed = self._ai.of(origin) if config.obey_ai_txt else None
        if allowed is not None and not allowed.rules.can_fetch(target.url, "*"):
            raise FetchFailed(Reason.AI_TXT_DENIED, f"{origin}/ai.txt disallows {target.url} to {config.product}")
        if config.obey_tdm and (rules := self._tdm.of(origin)) is not None:
            rule = next((rule for rule in rules if rule.pattern.matches(path)), None)
            if rule is not None and rule.is_reserved:
                words = f"tdmrep.json reserves {rule.location}{policy_words(rule.policy)}"
                raise FetchFailed(Reason.TDM_RESERVED, f"{origin}: its {words}: {target.url}")


@dataclass(frozen=True, slots=True)
class _Cached(Generic[T]):
    """What one origin's file says, None where there is none; or why it could not be read, and how often in a row."""

    expires: float
    what: T | FetchFailed | None
    failures: int = 0


class _File(Generic[T]):
    """One file of every origin.

    Attributes:
        is_binding: whether nothing may be asked for until the file could be read.
    """

    def __init__(
        self,
        path: str,
        kind: Kind,
        parse: Callable[[bytes], T],
        read: Read,
        *,
        attempts: int,
        clock: Callable[[], float],
        is_binding: bool = False,
    ) -> None:
        self._path, self._kind, self._parse, self._read = path, kind, parse, read
        self._attempts = attempts
        self._clock = clock
        self._is_binding = is_binding
        self._cached: dict[str, _Cached[T]] = {}  # the one met last at the end
        self._own_lock = threading.Lock()
        self._locks = [threading.Lock() for _ in range(_LOCKS)]  # of origins: one is asked by one thread

    def of(self, origin: str) -> T | None:
        """Return what an origin's file says, None where there is none.

        Raises:
            FetchFailed: it could not be read, and why.
        """
        with self._locks[hash(origin) % _LOCKS]:
            cached = self._cached.get(origin)
            if cached is None or cached.expires <= self._clock():
                cached = self._load(f"{origin}{self._path}", cached.failures if cached else 0)
            self._keep(origin, cached)
        if isinstance(cached.what, FetchFailed):
            raise FetchFailed(*cached.what.args)  # a fresh one for each thread
        return cached.what

    def _keep(self, origin: str, cached: _Cached[T]) -> None:
        with self._own_lock:
            self._cached.pop(origin, None)
            self._cached[origin] = cached
            if len(self._cached) > _MOST_ORIGINS:
                del self._cached[next(iter(self._cached))]  # what it says is in the raw store

    def _load(self, url: str, failures: int) -> _Cached[T]:
        """Read a file once; what fails is tried again by the next request, until it has failed often enough."""
        try:
            return _Cached(self._clock() + FRESH_S, self._parse(self._read(url, self._kind)))
        except FetchFailed as problem:
            status = problem.status or 0
            if 400 <= status < 500 and status != TOO_MANY_REQUESTS:
                return _Cached(self._clock() + FRESH_S, None)
            if not self._is_binding:
                return _Cached(self._clock() + _RETRY_S, None)
            if failures + 1 < self._attempts:
                return _Cached(self._clock(), problem, failures + 1)
            if status:
                message = f"{url} must be read first: {problem.message}"
                problem = FetchFailed(Reason.HTTP_ERROR, message, problem.exception)  # for the moment
            return _Cached(self._clock() + _RETRY_S, problem)


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A pattern of paths, as robots.txt has them (RFC 9309 2.2.3): its parts between `*`, and whether `$` ends it."""

    parts: tuple[bytes, ...]
    is_to_end: bool

    @classmethod
    def parse(cls, text: str) -> PathPattern:
        pattern = text if text.startswith(("/", "*")) else f"/{text}"
        parts = tuple(map(unquote_to_bytes, pattern.removesuffix("$").split("*")))
        return cls(parts, pattern.endswith("$"))

    def matches(self, path: str) -> bool:
        """Return whether the pattern describes a path with its query."""
        text, at = unquote_to_bytes(path), 0
        first, *others = self.parts
        if not text.startswith(first):
            return False
        at = len(first)
        for number, part in enumerate(others, start=1):
            if self.is_to_end and number == len(others):
                return len(text) - len(part) >= at and text.endswith(part)
            found = text.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        return not self.is_to_end or at == len(text)


@dataclass(frozen=True, slots=True)
class Usage:
    """A preference of robots.txt on training: of which paths, and what it says; `is_denied` is no."""

    name: str
    path: str
    pattern: PathPattern
    text: str
    is_denied: bool


@dataclass(frozen=True, slots=True)
class Robots:
    """What a robots.txt says to one product: its rules, as those of all, and its preferences on training."""

    rules: Protego
    usages: tuple[Usage, ...]

    def denied(self, path: str) -> str:
        """Return the preference that says no to a path; "": none does. The longest pattern counts, of equals no."""
        for name in USAGES:
            fitting = [usage for usage in self.usages if usage.name == name and usage.pattern.matches(path)]
            counting = max(fitting, key=lambda usage: (len(usage.path), usage.is_denied), default=None)
            if counting is not None and counting.is_denied:
                return f"{name}: {counting.text}"
        return ""


def parse_robots(data: bytes, *, product: str) -> Robots:
    """Return what the file says to a product: the groups that name its whole token, else those of all (RFC 9309 2.2.1).

    Protego sees the lines of these groups alone. Preferences that stand before any group are for all.
    """
    groups: dict[str, list[str]] = {"*": []}
    agents, is_begun = list[str](), True
    for line in data[:_PARSED_BYTES].decode("utf-8-sig", errors="replace").splitlines():
        plain = line.partition("#")[0].strip()
        field = plain.partition(":")[0].strip().lower()
        if match := _USER_AGENT.match(plain):
            agents = [*(agents if not is_begun else ()), product_of(match[1])]
            groups.setdefault(agents[-1], [])
            is_begun = False
        elif plain and field not in _OF_SITE:
            is_begun = True
            for agent in agents or (["*"] if field in USAGES else ()):
                groups[agent].append(plain)
    lines = groups.get(product_of(product), groups["*"])
    usages = (_usage(*line.partition(":")) for line in lines[:_MOST_RULES])
    return Robots(Protego.parse("\n".join(["User-agent: *", *lines])), tuple(filter(None, usages)))


def _usage(field: str, _: str, value: str) -> Usage | None:
    name, value = field.strip().lower(), value.strip()
    path, text = value.split(None, 1) if value.startswith("/") and len(value.split(None, 1)) == 2 else ("/", value)
    if name not in USAGES or not mentions(name, text):
        return None
    return Usage(name, path, PathPattern.parse(path), text[:_SHOWN], denies(name, text))


@dataclass(frozen=True, slots=True)
class TdmRule:
    """A rule of a tdmrep.json: the pattern as it stands there, and what holds for its paths."""

    location: str
    pattern: PathPattern
    is_reserved: bool
    policy: str


def parse_tdm(data: bytes) -> tuple[TdmRule, ...]:
    """Return the rules of a tdmrep.json in their order, of which the first that matches counts.

    One object is an array of it; anything else has no rules. A rule without one of its two obligatory properties is
    none.
    """
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        return ()
    listed = [found] if isinstance(found, dict) else found[:_MOST_RULES] if isinstance(found, list) else []
    return tuple(rule for item in listed if isinstance(item, dict) and (rule := _rule(item)) is not None)


def _rule(item: dict[str, Any]) -> TdmRule | None:
    location, reservation = item.get("location"), item.get("tdm-reservation")
    is_reserved = is_reservation(reservation)
    if not isinstance(location, str) or not (is_reserved or str(reservation).lower() in ("0", "false")):
        return None
    policy = item.get("tdm-policy")
    return TdmRule(location, PathPattern.parse(location), is_reserved, policy if isinstance(policy, str) else "")
