"""Failures of fetching by host and reason, as tables of failures have them: a row an image of a document, or a page."""

from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from schemas.failures import TRANSIENT, Reason

SHOWN = 20  # pairs of a host and a reason
_ADDRESSED = frozenset(
    {
        Reason.NOT_FOUND, Reason.FORBIDDEN, Reason.TOO_LARGE, Reason.TOO_MANY_REDIRECTS, Reason.NOT_AN_IMAGE,
        Reason.REMOVED_IMAGE, Reason.ROBOTS_DENIED, Reason.AI_TXT_DENIED, Reason.ROBOTS_TAG, Reason.ROBOTS_META,
        Reason.TDM_RESERVED, Reason.USAGE_DENIED,
    }
)  # fmt: skip
_HOST = r"^(?:https?://)(?P<host>[^/\s:?#|]+)"  # a message begins with the address it is about
_BARE_HOST = r"^(?:https?://)?(?P<host>[^/\s:?#|]+)"  # or, where no host was reached, with its name


def failures_by_host(parts: Iterable[pa.Table]) -> Counter[tuple[str, str]]:
    """Return how many rows each host and reason has in tables of failures; rows of local files are left out."""
    counts = Counter[tuple[str, str]]()
    for part in parts:
        for reasons, form in ((_ADDRESSED, _HOST), (TRANSIENT, _BARE_HOST)):
            rows = part.filter(pc.is_in(part.column("reason"), value_set=pa.array(sorted(reasons), pa.string())))
            found = pc.extract_regex(rows.column("message"), form).to_pylist()
            pairs = zip(found, rows.column("reason").to_pylist(), strict=True)
            counts.update((match["host"], reason) for match, reason in pairs if match is not None)
    return counts


def most_frequent(failures: Mapping[tuple[str, str], int]) -> list[tuple[str, str, int]]:
    """Return (host, reason, rows) of the most frequent, at most SHOWN; equal ones by name."""
    ordered = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    return [(host, reason, count) for (host, reason), count in ordered[:SHOWN]]


def host_lines(failures: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the most frequent failures by host as aligned lines; none where there are none."""
    lines = [f"{host:32} {reason:20} {count:>8}" for host, reason, count in most_frequent(failures)]
    return [f"{'host':32} {'reason':20} {'failures':>8}", *lines] if lines else []
