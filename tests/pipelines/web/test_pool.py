"""Many requests over many hosts, on real sockets: every one has its outcome, and no host holds up the others."""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipelines.web import pool
from pipelines.web.client import Client
from pipelines.web.pool import Crew, Outcome, fetch_all
from pipelines.web.requests import FetchFailed, Kind, Request, Response, Task
from schemas.failures import Reason
from schemas.messages import BuildError

CLOSED = "127.0.0.1:9"
OTHER = """
import sys
from pipelines.settings import HttpConfig
from pipelines.web.client import Client
from pipelines.web.requests import Kind
from schemas.lake import Folder
folder, port = sys.argv[1:]
address = f"127.0.0.1:{port}"
config = HttpConfig(connect_to=(f"host0.test={address}",), allow_hosts=(address,), obey_robots=False)
client = Client(config, Folder(folder))
client.get("http://host0.test/b", source="s", kind=Kind.IMAGE)
client.flush()
"""


@pytest.fixture
def client(web, client_of) -> Callable[..., Client]:
    """`client(hosts, closed)`: one that knows names of hosts; those in `closed` take no connection."""

    def make(hosts: list[str], closed: tuple[str, ...] = (), **settings: Any) -> Client:
        address = f"127.0.0.1:{web.port}"
        detours = [f"{host}={CLOSED if host in closed else address}" for host in (*hosts, *closed)]
        quick = {"backoff_s": 0.001, "obey_robots": False, "requests_per_second": 1e5}
        return client_of(connect_to=tuple(detours), allow_hosts=(address, CLOSED), **(quick | settings))

    return make


def ask(client: Client, urls: list[str], *, connections: int = 8, per_host: int = 4) -> Iterator[tuple[str, Outcome]]:
    requests = (Request(url, "s", Kind.IMAGE) for url in urls)
    for request, outcome in fetch_all(client, requests, connections=connections, connections_per_host=per_host):
        yield request.url, outcome


def names(count: int, stem: str = "host") -> list[str]:
    return [f"{stem}{number}.test" for number in range(count)]


def body_of(outcome: Outcome) -> bytes | None:
    assert isinstance(outcome, Response), outcome
    return outcome.body


def test_every_request_has_its_outcome_once(web, reply, client) -> None:
    hosts = names(40)
    web.scripts |= {f"/{path}": reply(200, b"%d" % path) for path in range(5)}
    urls = [f"http://{host}/{path}" for path in range(6) for host in hosts] + ["http://[bad", "ftp://x/", "x.jpg"]
    found = dict(ask(client(hosts), urls))
    assert sorted(found) == sorted(urls)
    reasons = Counter(str(each.reason) for each in found.values() if isinstance(each, FetchFailed))
    assert reasons == {"not-found": 40, "invalid-url": 3}
    assert all(body_of(found[f"http://{host}/{path}"]) == b"%d" % path for host in hosts for path in range(5))
    asked = len(web.asked)
    again = dict(ask(client(hosts), urls))
    assert len(web.asked) == asked  # what was stored or refused is there for the next process
    assert {url: type(each) for url, each in again.items()} == {url: type(each) for url, each in found.items()}
    assert all(each.from_store for each in again.values() if isinstance(each, Response))


def test_what_another_process_stored_meanwhile_is_not_asked_for(web, reply, client, tmp_path) -> None:
    """A worker that goes on for one that was killed had looked at the store shortly before."""
    web.scripts |= {"/a": reply(200, b"a"), "/b": reply(200, b"b")}
    mine = client(names(1))
    assert [url for url, _ in ask(mine, ["http://host0.test/a"])] == ["http://host0.test/a"]
    mine.look_up([Request("http://host0.test/b", "s", Kind.IMAGE)])
    other = [sys.executable, "-c", OTHER, str(tmp_path / "raw"), str(web.port)]
    subprocess.run(other, cwd=Path(pool.__file__).parents[2], check=True)
    ((_, outcome),) = ask(mine, ["http://host0.test/b"])
    assert isinstance(outcome, Response) and outcome.from_store
    assert [path for path, _ in web.asked].count("/b") == 1


def test_an_attempt_that_waits_holds_no_thread(web, reply, replies, client) -> None:
    web.scripts |= {"/busy": replies(reply(503, retry_after="1"), reply(200, b"later")), "/a": reply(200, b"now")}
    urls = ["http://busy.test/busy", *(f"http://{host}/a" for host in names(20))]
    found = list(ask(client(["busy.test", *names(20)]), urls, connections=1))
    assert found[-1][0] == urls[0] and body_of(found[-1][1]) == b"later"
    assert len(found) == 21


def test_hosts_that_do_not_answer_leave_threads_for_the_others(web, reply, client, monkeypatch) -> None:
    """Slow hosts that have answered before, each allowed several connections."""
    learn = pool.Crew._learn
    monkeypatch.setattr(
        pool.Crew,
        "_learn",
        lambda crew, host, problem, _: learn(crew, host, problem, 9.0 if "slow" in host.name else 0.0),
    )
    released = threading.Event()

    def silent(handler: Any) -> None:
        released.wait(60)
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ns")

    web.scripts |= {"/first": reply(200, b"1"), **{f"/silent{n}": silent for n in range(8)}}
    web.scripts |= {f"/{n}": reply(200, b"n") for n in range(60)}
    slow = names(3, "slow")
    urls = [f"http://{host}/first" for host in slow]
    urls += [f"http://{host}/silent{n}" for n in range(8) for host in slow]
    urls += [f"http://good.test/{n}" for n in range(60)]
    outcomes = ask(client([*slow, "good.test"], attempts=1), urls, connections=8)
    begun = [body_of(next(outcomes)[1]) for _ in range(63)]
    assert begun.count(b"n") == 60 and begun.count(b"1") == 3
    released.set()
    assert len(list(outcomes)) == 24


def test_a_slow_host_waits_for_a_thread_not_for_a_moment(web, reply, client, monkeypatch) -> None:
    """Ten slow hosts share one thread for such: each goes on when the one before is through, whatever the time."""
    learn, hand_out = pool.Crew._learn, pool.Crew._hand_out
    pauses = list[float | None]()
    monkeypatch.setattr(pool.Crew, "_learn", lambda crew, host, problem, _: learn(crew, host, problem, 9.0))
    monkeypatch.setattr(pool.Crew, "_hand_out", lambda crew: pauses.append(hand_out(crew)) or pauses[-1])
    web.scripts |= {f"/{n}": reply(200, b"%d" % n) for n in range(6)}
    hosts = names(10, "slow")
    urls = [f"http://{host}/{n}" for n in range(6) for host in hosts]
    found = dict(ask(client(hosts), urls, connections=2))
    assert all(body_of(found[url]) == url[-1].encode() for url in urls)
    assert max(pause or 0.0 for pause in pauses) < 0.5


def test_a_host_with_few_requests_does_not_wait_for_one_with_many(web, reply, client) -> None:
    web.scripts |= {f"/{n}": reply(200, b"n") for n in range(400)}
    urls = [f"http://many.test/{n}" for n in range(400)] + [f"http://few.test/{n}" for n in range(5)]
    order = [url for url, _ in ask(client(["many.test", "few.test"]), urls)]
    assert max(order.index(f"http://few.test/{n}") for n in range(5)) < 200


def test_a_dead_host_is_given_up_and_all_that_is_left_fails_alike(web, client, monkeypatch) -> None:
    dead = client([], closed=("dead.test",))
    tried = Mock(side_effect=dead._transport.connect)
    monkeypatch.setattr(dead._transport, "connect", tried)
    found = [outcome for _, outcome in ask(dead, [f"http://dead.test/{n}" for n in range(300)])]
    assert len(found) == 300 and 3 <= tried.call_count < 20
    assert {outcome.args for outcome in found if isinstance(outcome, FetchFailed)} == {
        (Reason.CONNECTION_FAILED, "dead.test: it refuses connections", "ConnectionRefusedError", None, None)
    }


def test_a_redirect_to_another_host_goes_by_its_queue(web, reply, client) -> None:
    web.scripts |= {f"/{n}": reply(302, location=f"http://end.test/to{n}") for n in range(10)}
    web.scripts |= {f"/to{n}": reply(200, b"%d" % n) for n in range(10)}
    hosts = names(10)
    found = dict(ask(client([*hosts, "end.test"]), [f"http://{host}/{n}" for n, host in enumerate(hosts)]))
    assert sorted(map(body_of, found.values())) == [b"%d" % n for n in range(10)]
    assert {each.final_url for each in found.values() if isinstance(each, Response)} == {
        f"http://end.test/to{n}" for n in range(10)
    }


def test_no_more_are_under_way_than_allowed(web, client) -> None:
    inside, most, guard = Counter[str](), Counter[str](), threading.Lock()

    def script(handler: Any) -> None:
        host = handler.headers["Host"]
        with guard:
            inside.update([host, "all"])
            most.update({name: max(0, inside[name] - most[name]) for name in (host, "all")})
        threading.Event().wait(0.01)
        with guard:
            inside.subtract([host, "all"])
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    web.scripts |= {f"/{n}": script for n in range(20)}
    hosts = names(6)
    found = list(ask(client(hosts), [f"http://{h}/{n}" for n in range(20) for h in hosts], connections=5, per_host=2))
    assert len(found) == 120
    assert most["all"] <= 5 and max(most[host] for host in hosts) <= 2


def test_requests_are_begun_no_faster_than_results_are_taken(web, reply, client) -> None:
    web.scripts |= {f"/{n}": reply(200, bytes(10_000)) for n in range(100)}
    outcomes = ask(client(["a.test"]), [f"http://a.test/{n}" for n in range(100)], connections=4)
    for taken, _ in enumerate(outcomes, start=1):
        assert len(web.paths) - taken <= 4 + 1
    assert taken == 100


def test_a_queue_is_first_in_first_out_and_mostly_in_its_file(tmp_path, client_of, monkeypatch) -> None:
    monkeypatch.setattr(pool, "_PIECE", 10)
    client = client_of()

    def task(number: int) -> Task:
        return client.begin(Request(f"http://a.test/{number}", "s", Kind.IMAGE, {"X": "y"}))

    with (tmp_path / "spill").open("wb+") as spill:
        hosts = [pool._Host("a", spill), pool._Host("b", spill)]
        taken: list[list[str]] = [[], []]
        for number in range(95):
            hosts[number % 2].push(task(number))
            if number % 3 == 0:
                taken[0].append(hosts[0].pop().target.url)
        for number, each in enumerate(hosts):
            while each.head or each.pieces or each.tail:
                assert len(each.head) + len(each.tail) < 20
                taken[number].append(each.pop().target.url)
    assert [url.rpartition("/")[2] for url in taken[0]] == [str(n) for n in range(0, 95, 2)]
    assert [url.rpartition("/")[2] for url in taken[1]] == [str(n) for n in range(1, 95, 2)]


@pytest.mark.slow
def test_where_nearly_all_fail_for_want_of_a_connection_it_ends_in_a_line(client) -> None:
    hosts = tuple(names(400))
    urls = [f"http://{host}/{n}" for n in range(4) for host in hosts]
    with pytest.raises(BuildError, match=r"950 of the first 1000 requests failed alike, such as: .*refuses") as caught:
        list(ask(client([], closed=hosts, attempts=1), urls))
    assert "\n" not in str(caught.value)


def test_one_dead_host_of_several_ends_nothing(web, reply, client) -> None:
    web.scripts["/a"] = reply(200, b"a")
    urls = [f"http://dead.test/{n}" for n in range(1500)] + [f"http://{host}/a" for host in names(3)]
    found = list(ask(client(names(3), closed=("dead.test",), attempts=1), urls))
    assert Counter(isinstance(each, Response) for _, each in found) == {True: 3, False: 1500}


def test_an_error_of_the_machine_is_raised(web, client, monkeypatch) -> None:
    full = client(["a.test"])
    monkeypatch.setattr(full, "advance", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        list(ask(full, ["http://a.test/1"]))


def test_results_left_untaken_end_the_threads(web, reply, client) -> None:
    web.scripts |= {f"/{n}": reply(200, b"n") for n in range(100)}
    before = {thread for thread in threading.enumerate() if "fetch" in thread.name}
    outcomes = ask(client(["a.test"]), [f"http://a.test/{n}" for n in range(100)])
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert {thread for thread in threading.enumerate() if "fetch" in thread.name} == before


def test_a_slow_host_does_not_hold_up_the_next_list(web, reply, client) -> None:
    """The slow one answers only when the whole second list is through."""
    is_through = threading.Event()

    def slow(handler: Any) -> None:
        is_through.wait()
        reply(200, b"late")(handler)

    web.scripts |= {"/slow": slow, "/a": reply(200, b"now")}
    hosts = names(6)
    crew = Crew(client(["slow.test", *hosts]), connections=4, connections_per_host=2)
    lists = [[f"http://{host}/a" for host in some] for some in (hosts[:3], hosts[3:])]
    lists[0].insert(0, "http://slow.test/slow")
    try:
        found = [
            [request.url for request, _ in crew.results((Request(url, "s", Kind.IMAGE) for url in some), carried=1)]
            for some in lists
        ]
        is_through.set()
        last = [(request.url, body_of(outcome)) for request, outcome in crew.results(())]
    finally:
        is_through.set()
        crew.close()
    assert [sorted(some) for some in found] == [sorted(lists[0][1:]), sorted(lists[1])]
    assert last == [("http://slow.test/slow", b"late")]


def test_a_host_whose_only_task_waits_for_its_next_attempt_is_not_forgotten(
    web, reply, replies, client, monkeypatch
) -> None:
    monkeypatch.setattr(pool, "_MOST_HOSTS", 2)
    web.scripts |= {"/busy": replies(reply(503, retry_after="2"), reply(200, b"later")), "/a": reply(200, b"now")}
    hosts = names(5)
    crew = Crew(client(["busy.test", *hosts]), connections=4, connections_per_host=2)
    urls = [["http://busy.test/busy", *(f"http://{host}/a" for host in hosts)], [f"http://{hosts[0]}/a"]]
    try:
        known = list[object]()
        for some in urls:
            list(crew.results((Request(url, "s", Kind.IMAGE) for url in some), carried=1))
            known.append(crew._hosts.get("busy.test"))
        last = [request.url for request, _ in crew.results(())]
    finally:
        crew.close()
    assert known[0] is not None and known[1] is known[0]
    assert last == ["http://busy.test/busy"]


def test_an_odd_answer_says_nothing_on_standard_error(web, client, caplog) -> None:
    """urllib3 warns of headers that it cannot read, without an address that a person could look at."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nno header\r\nA: b\r\n\r\nok"
    web.scripts["/odd"] = lambda handler: handler.wfile.write(answer)
    list(ask(client(["a.test"]), ["http://a.test/odd"]))
    assert not [record.name for record in caplog.records if record.name.startswith("urllib3")]
