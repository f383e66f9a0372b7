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

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar
from urllib.parse import quote

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
_APART = re.compile(r"[\s#]")  # would end a line of robots.txt
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
        if config.obey_robots and (robots := self._robots.of(origin)) is not None:
            if not robots.rules.can_fetch(target.url, "*"):
                message = f"{origin}/robots.txt disallows {target.url} to {config.product}"
                raise FetchFailed(Reason.ROBOTS_DENIED, message)
            if config.obey_content_usage and (denied := robots.denied(target.url)):
                raise FetchFailed(
                    Reason.USAGE_DENIED, f"{origin}/robots.txt refuses training by {denied}: {target.url}"
                )
            delay_s = robots.rules.crawl_delay("*") or 0.0
            if delay_s > LONGEST_WAIT_S:
                message = f"{origin}/robots.txt wants {delay_s:g} s between requests, over {LONGEST_WAIT_S:g}"
                raise FetchFailed(Reason.ROBOTS_DENIED, message)
            self._pace.slow_to(target.host, delay_s)
        allowed = self._ai.of(origin) if config.obey_ai_txt else None
        if allowed is not None and not allowed.rules.can_fetch(target.url, "*"):
            raise FetchFailed(Reason.AI_TXT_DENIED, f"{origin}/ai.txt disallows {target.url} to {config.product}")
        if config.obey_tdm and (rules := self._tdm.of(origin)) is not None:
            rule = next((rule for rule in rules if rule.matches(target.url)), None)
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
class Robots:
    """What a robots.txt says to one product: its rules, as those of all, and its preferences on training, by name."""

    rules: Protego
    usages: Mapping[str, Protego]

    def denied(self, url: str) -> str:
        """Return the preference that says no to a URL; "": none does. The longest pattern counts, of equals no."""
        return next((name for name, rules in self.usages.items() if not rules.can_fetch(url, "*")), "")


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
    return Robots(_rules(lines), {name: _preferences(name, lines[:_MOST_RULES]) for name in USAGES})


def _rules(lines: Iterable[str]) -> Protego:
    return Protego.parse("\n".join(["User-agent: *", *lines]))


def _preferences(name: str, lines: Iterable[str]) -> Protego:
    """Return rules that disallow the paths for which lines of a robots.txt say no to training by one of `USAGES`."""
    paths: dict[bool, set[str]] = {True: set(), False: set()}
    for line in lines:
        field, _, value = line.partition(":")
        path, _, text = value.strip().partition(" ") if value.strip().startswith("/") else ("/", "", value)
        if field.strip().lower() == name and mentions(name, text):
            paths[denies(name, text)].add(path)
    return _rules(
        [*(f"Disallow: {path}" for path in paths[True]), *(f"Allow: {path}" for path in paths[False] - paths[True])]
    )


@dataclass(frozen=True, slots=True)
class TdmRule:
    """A rule of a tdmrep.json: the pattern of paths as it stands there, and what holds for these."""

    location: str
    is_reserved: bool
    policy: str

    def matches(self, url: str) -> bool:
        """Return whether the pattern, which is one of robots.txt (RFC 9309 2.2.3), describes the path of a URL."""
        return not _disallowing(self.location).can_fetch(url, "*")


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
    return TdmRule(location, is_reserved, policy if isinstance(policy, str) else "")


@lru_cache(_MOST_RULES)
def _disallowing(location: str) -> Protego:
    path = _APART.sub(lambda found: quote(found[0]), location)
    return _rules([f"Disallow: {path if path.startswith(('/', '*')) else f'/{path}'}"])
