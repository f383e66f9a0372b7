"""What hosts refused in a build (401, 403, 404, 410, 451), told by the index of the raw store.

An outage, or a filter of robots, may look like this: most that is asked of a host is refused at once. It is remembered
for days, so a person has to be told, and how to ask again.
"""

from collections import Counter
from typing import NamedTuple

import pyarrow.parquet as pq

from pipelines.web.requests import REMEMBERED_S, host_of
from schemas.failures import Reason
from schemas.lake import Folder

FEWEST = 10  # refusals of a host
SHARE = 0.5  # of what was asked of it
_REFUSALS = (Reason.FORBIDDEN, Reason.NOT_FOUND)
_OF_ORIGINS = ("robots", "well-known")
_HOSTS_TOLD = 10


class Refusals(NamedTuple):
    """How many addresses of a host were refused, of how many that were asked for."""

    refused: int
    asked: int
    host: str


def hosts_that_refused(raw: Folder, *, since: str) -> list[Refusals]:
    """Return the hosts that refused most of what was asked of them, those that refused most first.

    Args:
        raw: the raw store.
        since: beginning of the names of segments that were opened when a build began: older ones are not read.
    """
    asked, refused = Counter[str](), Counter[str]()
    for path in raw.files():
        folder, _, name = path.rpartition("/")
        if folder.endswith("/index") and name >= since:
            with raw.open(path) as stream:
                table = pq.read_table(stream, columns=["kind", "url", "reason"])
            for row in table.to_pylist():
                if row["kind"] not in _OF_ORIGINS and (host := host_of(row["url"])):
                    asked[host] += 1
                    refused[host] += row["reason"] in _REFUSALS
    found = (Refusals(number, asked[host], host) for host, number in refused.items())
    jumps = [each for each in found if each.refused >= FEWEST and each.refused > SHARE * each.asked]
    return sorted(jumps, reverse=True)[:_HOSTS_TOLD]


def refusal_lines(hosts: list[Refusals]) -> list[str]:
    """Return a warning a host, and how to ask again."""
    days = {reason: round(REMEMBERED_S[reason] / 86_400) for reason in _REFUSALS}
    lines = [
        f"warning: {host} refused {refused} of {asked} addresses that were asked for (403, 404); this is remembered: "
        f"{days[Reason.FORBIDDEN]} day, {days[Reason.NOT_FOUND]} days"
        for refused, asked, host in hosts
    ]
    return [*lines, "to ask again at once: --ask-again-all"] if lines else []
