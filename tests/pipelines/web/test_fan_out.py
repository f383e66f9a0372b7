"""Items handed to threads: every result comes once, few are ahead, and failures surface."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from pipelines.web.fan_out import AHEAD, HANDED_OVER_AFTER_S, map_concurrently


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_every_item_has_its_result_once(threads: int, count: int) -> None:
    assert sorted(map_concurrently(lambda number: -number, range(count), threads=threads)) == list(range(1 - count, 1))


def test_results_of_none_count_as_results() -> None:
    assert list(map_concurrently(lambda item: item, [None] * 20, threads=3)) == [None] * 20


def test_items_are_drawn_by_the_caller_and_no_faster_than_results_are_taken() -> None:
    drawn: list[str] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            drawn.append(threading.current_thread().name)
            yield number

    for taken, _ in enumerate(map_concurrently(lambda number: number, items(), threads=2), start=1):
        assert len(drawn) - taken < 2 * AHEAD * 2
    assert set(drawn) == {threading.current_thread().name}


def test_items_are_worked_on_side_by_side() -> None:
    together = threading.Barrier(3, timeout=10)  # passes only where three are under way
    assert len(list(map_concurrently(lambda _: together.wait(), range(9), threads=3))) == 9


def test_results_of_slow_items_do_not_wait_for_the_next() -> None:
    are_taken = threading.Event()

    def work(number: int) -> int:
        if number < 3:
            time.sleep(1.5 * HANDED_OVER_AFTER_S)
        elif not are_taken.wait(timeout=10):
            raise TimeoutError("the first results were not handed over")
        return number

    results = map_concurrently(work, range(9), threads=3)
    first = {next(results) for _ in range(3)}
    are_taken.set()
    assert first == {0, 1, 2} and sorted(results) == [3, 4, 5, 6, 7, 8]


def test_an_exception_is_raised_and_ends_the_threads() -> None:
    begun: list[int] = []

    def fail(number: int) -> int:
        begun.append(number)
        if number == 20:
            raise ValueError("the twentieth")
        return number

    before = threading.active_count()
    with pytest.raises(ValueError, match="the twentieth"):
        list(map_concurrently(fail, range(100_000), threads=2))
    assert threading.active_count() == before and len(begun) < 200


def test_an_exception_of_the_items_is_raised() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        list(map_concurrently(lambda number: number, items(), threads=2))


def test_results_left_untaken_end_the_threads() -> None:
    before = threading.active_count()
    results = map_concurrently(lambda number: number, range(100_000), threads=2)
    assert next(results) in range(AHEAD * 4)
    results.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
