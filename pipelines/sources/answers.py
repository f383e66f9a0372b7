"""Records that are asked of hosts: one request each, and what is read of its answer."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from pipelines.sources.records import outcomes_of
from pipelines.web.client import Client, usable
from pipelines.web.pool import fetch_all
from pipelines.web.requests import Outcome, Request, Response
from schemas.failures import Failure

T = TypeVar("T")
R = TypeVar("R")


def fetch_records(
    items: Iterable[tuple[str, T]],
    *,
    client: Client,
    request_of: Callable[[T], Request],
    read: Callable[[T, Response], Iterable[R | Failure]],
    note: Callable[[Iterable[tuple[str, str]]], None] | None = None,
) -> Iterator[R | Failure]:
    """Yield what is read of the answer to each item's request, or why there is none, in the order of the answers.

    Args:
        items: what failures are filed under, and the item; several may ask for the same address.
        client: fetches, with as many connections as one host may have.
        request_of: returns an item's request.
        read: returns what an answer gives; what it raises is the failure row of this item alone.
        note: is called with what failures are filed under and the address of each item before any of them is asked for.
    """
    waiting: dict[str, list[tuple[str, T]]] = {}
    requests: dict[str, Request] = {}
    for record_id, item in items:
        request = request_of(item)
        requests[request.url] = request
        waiting.setdefault(request.url, []).append((record_id, item))
    if note is not None:
        note((record_id, address) for address, group in waiting.items() for record_id, _ in group)
    threads = client.config.connections_per_host
    answers = fetch_all(client, requests.values(), connections=threads, connections_per_host=threads)
    for request, outcome in answers:
        yield from outcomes_of(waiting.pop(request.url), partial(_read_answer, outcome, read))


def _read_answer(
    outcome: Outcome, read: Callable[[T, Response], Iterable[R | Failure]], item: T, _: str
) -> Iterable[R | Failure]:
    return read(item, usable(outcome))
