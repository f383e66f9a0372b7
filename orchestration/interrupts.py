"""Ctrl-C and SIGTERM: one note that they came, which every part of the command line can read.

Libraries make errors of their own of an interrupt. Whatever ends a command after one, it was stopped and did not fail.
Imported before all else, and so it imports next to nothing.
"""

import signal

STOPPED = 130  # status of a command that was stopped
INTERRUPTS: list[int] = []  # signals that came since the command began


def heed_interrupts() -> None:
    """Let SIGINT and SIGTERM end the program as `KeyboardInterrupt` does; temporary files are removed after either."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, note_interrupt)


def note_interrupt(number: int, _: object) -> None:
    """Handle a signal as Ctrl-C is, so that an error that a library makes of it is known to be no fault."""
    INTERRUPTS.append(number)
    raise KeyboardInterrupt
