"""How often Python looks for cycles among its objects.

Neither what is imported nor what is read has cycles, and each look goes through much of it. At Python's own threshold
that is a fifth of the processor's time of a command's imports, and a seventh of a build's.
"""

import gc

COLLECTED_AFTER = 20_000  # objects; Python: 700


def collect_rarely() -> None:
    """Look for cycles only after so many new objects, from now on in this process and its forks."""
    gc.set_threshold(COLLECTED_AFTER, *gc.get_threshold()[1:])
