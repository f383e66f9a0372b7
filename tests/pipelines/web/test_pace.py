"""Pace under a clock that only `sleep` moves."""

import threading

import pytest

from pipelines.web.pace import Pace
from pipelines.web.schedules import OwnSchedules


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def pace_of(clock: Clock, **settings: float) -> Pace:
    values = {"requests_per_second": 2.0, "longest_interval_s": 60.0} | settings
    return Pace(OwnSchedules(), connections_per_host=4, clock=clock.time, sleep=clock.sleep, **values)


def starts(pace: Pace, clock: Clock, host: str, count: int) -> list[float]:
    moments = []
    for _ in range(count):
        with pace.slot(host):
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
        ({"X-RateLimit-UserRemaining": "10", "X-RateLimit-UserReset": "1100"}, [10.0, 20.0]),
        ({"X-RateLimit-ClientRemaining": "10", "X-RateLimit-UserReset": "1100"}, [10.0, 20.0]),
        ({"x-ratelimit-remaining": "4.0", "x-ratelimit-reset": "20"}, [5.0, 10.0]),
        ({"X-RateLimit-UserRemaining": "0", "X-RateLimit-UserReset": "5000"}, [60.0, 120.0]),
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


def test_no_more_than_the_allowed_requests_are_under_way() -> None:
    pace = Pace(OwnSchedules(), requests_per_second=1000.0, connections_per_host=2, longest_interval_s=1.0)
    gate = threading.Event()
    inside = threading.Semaphore(0)
    under_way = []

    def visit() -> None:
        with pace.slot("a.example"):
            under_way.append(1)
            inside.release()
            gate.wait(5)

    threads = [threading.Thread(target=visit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        assert inside.acquire(timeout=5)
    assert not inside.acquire(timeout=0.1)
    assert len(under_way) == 2
    gate.set()
    for thread in threads:
        thread.join()
    assert len(under_way) == 4
