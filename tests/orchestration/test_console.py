"""Progress: in place on a terminal, every ten seconds elsewhere; a caller in this process hears every line."""

import io

import pytest

from orchestration.console import ERASED, Console, erased
from schemas.messages import Passing, left_of, paced


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    for module in ("orchestration.console", "schemas.messages"):
        monkeypatch.setattr(f"{module}.monotonic", lambda: now[0])
    return now


def test_passing_lines_take_one_anothers_place_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "30")
    shown = Console()
    for line in (Passing("images 1"), Passing("images 2 of a very long line that is cut"), "done"):
        shown.say(line)
    erase = ERASED
    assert screen.getvalue() == (
        f"{erase}[   0.0 s] images 1{erase}[   0.0 s] images 2 of a very{erase}[   0.0 s] done\n"
    )
    assert erased() == erase


def test_elsewhere_a_passing_line_is_kept_every_ten_seconds(
    capsys: pytest.CaptureFixture[str], clock: list[float]
) -> None:
    shown = Console()
    for second in range(25):
        clock[0] = 100.0 + second
        shown.say(Passing(f"images {second}"))
        if second == 3:
            shown.say("a line of its own")
    lines = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["images 0", "a line of its own", "images 10", "images 20"]
    assert erased() == ""


def test_passing_lines_are_handed_on_apart() -> None:
    kept: list[str] = []
    hand_on = paced(kept.append)
    for line in (Passing("a"), Passing("b"), "c"):
        hand_on(line)
    assert kept == ["a", "c"]


@pytest.mark.parametrize(
    ("done", "total", "seconds", "words"),
    [(0, 9, 5.0, ""), (3, 9, 60.0, ", 0:02:00 left"), (9, 9, 7.0, ", 0:00:00 left"), (1, 3601, 1.0, ", 1:00:00 left")],
)
def test_the_time_that_is_left(done: int, total: int, seconds: float, words: str) -> None:
    assert left_of(done, total, seconds) == words
