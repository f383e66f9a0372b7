"""Whatever happens to a lake in whatever order: intact, one content a name, as a fresh one, nothing forgotten.

Six walks have every two operations of `world.py` one after the other, once. The first is in the suite; the others, each
walk in the other order, and two operations alone are trials.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise, permutations
from pathlib import Path

import pytest
from pairs.world import OPERATIONS, Host, Inputs, World, check, forget_no_failure, kill, serving

from schemas.lake import MANIFEST, Folder, Lake

Operation = Callable[[World], None]


@dataclass
class Bases:
    """A host, a lake in which one version is built, and what fresh lakes give."""

    root: Path
    host: Host
    fresh: dict[Inputs, bytes] = field(default_factory=dict)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bases]:
    root = tmp_path_factory.mktemp("base")
    with serving() as host, pytest.MonkeyPatch.context() as patch:
        forget_no_failure(patch)
        World(root, host, patch).build()
        yield Bases(root, host)


def walks() -> list[tuple[Operation, ...]]:
    """Return orders of the operations in which every two of them are neighbours once (Walecki; their number is even).

    The first is 0, n - 1, 1, n - 2 ...; the next ones count each on by one.
    """
    count = len(OPERATIONS)
    zigzag = [number // 2 if number % 2 == 0 else count - 1 - number // 2 for number in range(count)]
    return [tuple(OPERATIONS[(step + shift) % count] for step in zigzag) for shift in range(count // 2)]


def cases() -> Iterator[object]:
    for number, walk in enumerate(walks()):
        yield pytest.param(walk, id=f"walk-{number}", marks=[pytest.mark.trial] * (number > 0))
        yield pytest.param(walk[::-1], id=f"walk-back-{number}", marks=pytest.mark.trial)
    for pair in permutations(OPERATIONS, 2):
        yield pytest.param(pair, id="-".join(each.__name__ for each in pair), marks=pytest.mark.trial)


def test_every_two_operations_are_neighbours() -> None:
    met = [frozenset(pair) for walk in walks() for pair in pairwise(walk)]
    assert len(met) == len(set(met)) and set(met) == {frozenset(pair) for pair in combinations(OPERATIONS, 2)}


@pytest.mark.parametrize("operations", [*cases()])
def test_what_happens_to_a_lake(
    bases: Bases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operations: Sequence[Operation]
) -> None:
    world = begin(bases, tmp_path, monkeypatch)
    for operation in operations:
        operation(world)
        check(world)
    summary = world.build()
    assert world.build().is_reused
    check(world)
    if world.inputs not in bases.fresh:
        bases.fresh[world.inputs] = Folder(world.build(Lake.at(str(tmp_path / "fresh"))).path).read(MANIFEST)
    assert Folder(summary.path).read(MANIFEST) == bases.fresh[world.inputs]


def begin(bases: Bases, root: Path, patch: pytest.MonkeyPatch) -> World:
    shutil.copytree(bases.root / "lake", root / "lake")
    world = World(root, bases.host, patch)
    check(world)
    return world


def test_a_kill_leaves_something(bases: Bases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = begin(bases, tmp_path, monkeypatch)
    before = set(world.lake.root.files())
    kill(world)
    left = set(world.lake.root.files()) - before
    assert any(path.startswith("datasets/") for path in left) and not any(path.endswith(MANIFEST) for path in left)
