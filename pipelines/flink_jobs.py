"""Jobs of a Flink cluster, over its REST interface: Beam's job server ends its own part of a cancelled run alone.

Source: Flink's documentation of the REST API, `/jobs/overview` and `PATCH /jobs/:jobid`.
"""

import json
from collections.abc import Sequence
from typing import Any
from urllib.request import Request, urlopen

OPTION, NAME_OPTION = "--flink_master=", "--job_name="
_ENDED = frozenset({"FINISHED", "CANCELED", "FAILED", "CANCELLING"})
_TIMEOUT_S = 30.0


def cancel_job(beam_options: Sequence[str]) -> list[str]:
    """Cancel what runs under the name of a run, and return the ids of these jobs.

    Args:
        beam_options: with the address of the master and the name; without an address, or with one in brackets (Flink
            within another program), there is nothing to ask.

    Raises:
        OSError: the master cannot be asked.
    """
    master, name = (_value(beam_options, option) for option in (OPTION, NAME_OPTION))
    if not master or master.startswith("[") or not name:
        return []
    base = master if "://" in master else f"http://{master}"
    jobs = [job for job in _ask(f"{base}/jobs/overview")["jobs"] if job["name"] == name and job["state"] not in _ENDED]
    for job in jobs:
        _ask(f"{base}/jobs/{job['jid']}?mode=cancel", "PATCH")
    return [job["jid"] for job in jobs]


def _value(options: Sequence[str], name: str) -> str:
    return next((option.removeprefix(name) for option in reversed(options) if option.startswith(name)), "")


def _ask(url: str, method: str = "GET") -> dict[str, Any]:
    with urlopen(Request(url, method=method), timeout=_TIMEOUT_S) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
