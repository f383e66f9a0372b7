"""Pace under a clock that only `sleep` moves."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from pipelines.web import hosts
from pipelines.web.hosts import Pace

A = "a.example"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def begin() -> tuple[Clock, Pace]:
    clock = Clock()
    return clock, Pace(requests_per_second=2.0, clock=clock.time)


def starts(pace: Pace, clock: Clock, host: str, count: int) -> list[float]:
    moments = []
    for _ in range(count):
        clock.sleep(pace.reserve(host))
        moments.append(clock.now - 1000.0)
    return moments


def user(left: str, reset: str) -> dict[str, str]:
    return {"X-RateLimit-UserRemaining": left, "X-RateLimit-UserReset": reset}


WISHES: dict[str, tuple[Callable[[Pace], object], list[float]]] = {  # and when three requests then start
    "none": (lambda pace: None, [0.0, 0.5, 1.0]),
    "of another host": (lambda pace: pace.pause("b.example", 9.0), [0.0, 0.5, 1.0]),
    "a delay that only lengthens": (lambda pace: [pace.slow_to(A, s) for s in (3.0, 0.1)], [0.0, 3.0, 6.0]),
    "a pause": (lambda pace: pace.pause(A, 7.0), [7.0, 7.5, 8.0]),
    "a pause without end": (lambda pace: pace.pause(A, 1e9), [120.0, 120.5, 121.0]),
    "a window of milliseconds": (lambda pace: pace.heed(A, user("10", "1100000")), [10.0, 20.0, 30.0]),
    "a window by its end": (lambda pace: pace.heed(A, user("10", "1100")), [10.0, 20.0, 30.0]),
    "of a client": (lambda pace: pace.heed(A, {"X-RateLimit-ClientRemaining": "10", "X-RateLimit-UserReset": "1100"}),
                    [10.0, 20.0, 30.0]),
    "in seconds": (lambda pace: pace.heed(A, {"x-ratelimit-remaining": "4.0", "x-ratelimit-reset": "20"}),
                   [5.0, 10.0, 15.0]),
    "nothing left": (lambda pace: pace.heed(A, user("0", "5000")), [120.0, 240.0, 360.0]),
    "over soon": (lambda pace: pace.heed(A, user("1", "1010")), [10.0, 10.5, 11.0]),
    "much left": (lambda pace: pace.heed(A, user("400", "1100")), [0.0, 0.5, 1.0]),
    "words": (lambda pace: pace.heed(A, user("few", "soon")), [0.0, 0.5, 1.0]),
    "no end": (lambda pace: pace.heed(A, {"X-RateLimit-UserRemaining": "1"}), [0.0, 0.5, 1.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", WISHES)
def test_the_pace_of_a_host_follows_its_wishes(name: str) -> None:
    wish, expected = WISHES[name]
    clock, pace = begin()
    wish(pace)
    gaps = [later - earlier for earlier, later in pairwise(starts(pace, clock, A, 3))]
    assert gaps == [later - earlier for earlier, later in pairwise(expected)]
    assert clock.now - 1000.0 == expected[-1]


def test_a_reset_in_other_units_holds_no_longer_than_an_hour() -> None:
    for reset in ("1760000000000", "9" * 300, "1e300", "86400000"):
        clock, pace = begin()
        pace.heed("a.example", {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset})
        moments = starts(pace, clock, "a.example", 40)
        assert moments[0] <= 120.0 and moments[-1] <= 3_600.0 + 120.0


def test_a_later_header_that_leaves_enough_ends_it() -> None:
    clock, pace = begin()
    pace.heed("a.example", {"X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "400"})
    assert starts(pace, clock, "a.example", 2) == [120.0, 240.0]
    pace.heed("a.example", {"X-RateLimit-Remaining": "5000", "X-RateLimit-Reset": "400"})
    assert starts(pace, clock, "a.example", 3) == [360.0, 360.5, 361.0]


def test_hosts_that_nothing_holds_back_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_MOST_HOSTS", 10)
    clock, pace = begin()
    pace.pause("slow.example", 100.0)
    for number in range(1000):
        starts(pace, clock, f"host{number}.example", 1)
        clock.sleep(0.1)
    assert len(pace._hosts) < 30
    assert pace.next_start("slow.example") == 1100.0


def test_a_host_that_is_met_while_others_are_forgotten_keeps_its_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_MOST_HOSTS", 3)
    clock, pace = begin()
    for number in range(3):
        pace.reserve(f"old{number}.example")
    clock.sleep(60.0)
    assert starts(pace, clock, "new.example", 3) == [60.0, 60.5, 61.0]


def test_looking_at_a_host_keeps_nothing_of_it() -> None:
    """A look from one thread, while another one forgets hosts, must not change what that one goes through."""
    _, pace = begin()
    known = dict(pace._hosts)
    assert [pace.next_start(f"host{number}.example") for number in range(9)] == [0.0] * 9
    assert dict(pace._hosts) == known
