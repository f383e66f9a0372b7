"""Whose turn it is in a lake: builds of different data sets work side by side, what deletes from a lake works alone.

    <lake>/builds/leases/<data set>/lease.json     held by a build for as long as it runs
    <lake>/builds/leases/_lake/lease.json          held by what works alone

Each takes its own lease first and looks at the others' then, so that of two that begin at once one sees the other.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from schemas.lake import Folder, Lake, check_name
from schemas.leases import hold

LEASES = "leases"
_LAKE = "_lake"  # no data set has this name


@contextmanager
def turn_of_build(lake: Lake, dataset: str, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Hold a data set for a build of it; another build of it, and what works alone, are waited for.

    Gives what checks that it is still held, before a version is committed.

    Raises:
        ConfigError: the data set's name is none.
    """

    def wait_for(what: str) -> Callable[[str], None]:
        return lambda holder: say(f"{what} is under way on this lake: {holder}; waiting for it")

    with hold(_leases(lake).child(check_name(dataset)), on_wait=wait_for(f"another build of {dataset}")) as check:
        with hold(_leases(lake).child(_LAKE), on_wait=wait_for("lake sweep or lake forget")):
            pass
        yield check


@contextmanager
def turn_alone(lake: Lake) -> Iterator[None]:
    """Hold a whole lake.

    Raises:
        HeldError: a build is under way, or something else that works alone.
    """
    with ExitStack() as stack:
        stack.enter_context(hold(_leases(lake).child(_LAKE)))
        for name in _leases(lake).names():
            if name != _LAKE:
                stack.enter_context(hold(_leases(lake).child(name)))
        yield


def _leases(lake: Lake) -> Folder:
    return lake.builds.child(LEASES)
