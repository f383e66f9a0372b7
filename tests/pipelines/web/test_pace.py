"""Pace under a clock that only `sleep` moves."""

import pytest

from pipelines.settings import HttpConfig
from pipelines.web import hosts
from pipelines.web.hosts import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def pace_of(clock: Clock) -> Pace:
    return Pace(requests_per_second=2.0, clock=clock.time)


def starts(pace: Pace, clock: Clock, host: str, count: int) -> list[float]:
    moments = []
    for _ in range(count):
        clock.sleep(pace.reserve(host))
        moments.append(clock.now - 1000.0)
    return moments


def test_requests_to_a_host_are_spaced_and_hosts_are_apart() -> None:
    clock = Clock()
    pace = pace_of(clock)
    assert starts(pace, clock, "a.example", 3) == [0.0, 0.5, 1.0]
    assert starts(pace, clock, "b.example", 1) == [1.0]


def test_a_crawl_delay_only_lengthens() -> None:
    clock = Clock()
    pace = pace_of(clock)
    pace.slow_to("a.example", 3.0)
    pace.slow_to("a.example", 0.1)
    assert starts(pace, clock, "a.example", 3) == [0.0, 3.0, 6.0]


def test_a_pause_holds_every_request_of_the_host() -> None:
    clock = Clock()
    pace = pace_of(clock)
    pace.pause("a.example", 7.0)
    assert starts(pace, clock, "a.example", 2) == [7.0, 7.5]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"X-RateLimit-UserRemaining": "10", "X-RateLimit-UserReset": "1100000"}, [10.0, 20.0]),
        ({"X-RateLimit-UserRemaining": "10", "X-RateLimit-UserReset": "1100"}, [10.0, 20.0]),
        ({"X-RateLimit-ClientRemaining": "10", "X-RateLimit-UserReset": "1100"}, [10.0, 20.0]),
        ({"x-ratelimit-remaining": "4.0", "x-ratelimit-reset": "20"}, [5.0, 10.0]),
        ({"X-RateLimit-UserRemaining": "0", "X-RateLimit-UserReset": "5000"}, [120.0, 240.0]),
        ({"X-RateLimit-UserRemaining": "400", "X-RateLimit-UserReset": "1100"}, [0.0, 0.5]),
        ({"X-RateLimit-UserRemaining": "few", "X-RateLimit-UserReset": "soon"}, [0.0, 0.5]),
        ({"X-RateLimit-UserRemaining": "1"}, [0.0, 0.5]),
    ],
)
def test_little_left_of_a_window_is_spread_over_it(headers: dict[str, str], expected: list[float]) -> None:
    clock = Clock()
    pace = pace_of(clock)
    pace.heed("a.example", headers)
    assert starts(pace, clock, "a.example", 2) == expected


def test_after_the_window_the_pace_is_as_before() -> None:
    clock = Clock()
    pace = pace_of(clock)
    pace.heed("a.example", {"X-RateLimit-UserRemaining": "1", "X-RateLimit-UserReset": "1010"})
    assert starts(pace, clock, "a.example", 3) == [10.0, 10.5, 11.0]


def test_a_reset_in_other_units_holds_no_longer_than_an_hour() -> None:
    for reset in ("1760000000000", "9" * 300, "1e300", "86400000"):
        clock = Clock()
        pace = pace_of(clock)
        pace.heed("a.example", {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset})
        moments = starts(pace, clock, "a.example", 40)
        assert moments[0] <= 120.0 and moments[-1] <= 3_600.0 + 120.0


def test_a_later_header_that_leaves_enough_ends_it() -> None:
    clock = Clock()
    pace = pace_of(clock)
    pace.heed("a.example", {"X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "400"})
    assert starts(pace, clock, "a.example", 2) == [120.0, 240.0]
    pace.heed("a.example", {"X-RateLimit-Remaining": "5000", "X-RateLimit-Reset": "400"})
    assert starts(pace, clock, "a.example", 3) == [360.0, 360.5, 361.0]


def test_a_pause_has_an_end() -> None:
    clock = Clock()
    pace = pace_of(clock)
    pace.pause("a.example", 1e9)
    assert starts(pace, clock, "a.example", 1) == [120.0]


def test_workers_that_share_a_host_keep_its_pace_together() -> None:
    """Three workers, each waiting three times as long."""
    clock = Clock()
    pace = Pace(requests_per_second=2.0, clock=clock.time, workers=3)
    assert starts(pace, clock, "a.example", 3) == [0.0, 1.5, 3.0]
    pace.slow_to("b.example", 2.0)
    assert starts(pace, clock, "b.example", 3) == [3.0, 9.0, 15.0]


def test_hosts_that_nothing_holds_back_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_MOST_HOSTS", 10)
    clock = Clock()
    pace = pace_of(clock)
    pace.pause("slow.example", 100.0)
    for number in range(1000):
        starts(pace, clock, f"host{number}.example", 1)
        clock.sleep(0.1)
    assert len(pace._hosts) < 30
    assert pace.next_start("slow.example") == 1100.0


def test_a_host_that_is_met_while_others_are_forgotten_keeps_its_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_MOST_HOSTS", 3)
    clock = Clock()
    pace = pace_of(clock)
    for number in range(3):
        pace.reserve(f"old{number}.example")
    clock.sleep(60.0)
    assert starts(pace, clock, "new.example", 3) == [60.0, 60.5, 61.0]


def test_looking_at_a_host_keeps_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look from one thread, while another one forgets hosts, must not change what that one goes through."""
    pace = pace_of(Clock())
    known = dict(pace._hosts)
    assert [pace.next_start(f"host{number}.example") for number in range(9)] == [0.0] * 9
    assert dict(pace._hosts) == known


def test_several_workers_of_a_host_are_no_more_than_its_connections() -> None:
    """8 workers cannot share 4 connections: 4 of them do, and the pace is theirs."""
    config = HttpConfig(requests_per_second=5.0, workers_per_host=8, connections_per_host=4)
    assert (config.sharing_workers, config.connections_of_worker) == (4, 1)
    config = HttpConfig(requests_per_second=5.0, workers_per_host=2, connections_per_host=5)
    assert (config.sharing_workers, config.connections_of_worker) == (2, 2)
    assert HttpConfig().sharing_workers == 1
