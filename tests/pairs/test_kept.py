"""What is swept, and what an unforeseen error names, after other things happened to a lake."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from builds import rows
from pairs.world import World, check, serving, sweep_up, upgrade_code

from pipelines.documents import transforms as documents
from pipelines.documents import transforms as quality
from pipelines.features import transforms as features
from pipelines.web import client


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = list[client.Client]()

    def make(*settings: Any) -> client.Client:
        made.append(client.Client(*settings[:2]))
        return made[-1]

    monkeypatch.setattr(client, "_client", cache(make))
    with serving() as host:
        yield World(tmp_path, host, monkeypatch)
    for each in made:  # a process keeps few: what another test drops must have no segment open
        each.flush()


def test_a_sweep_leaves_the_copies_of_versions_that_an_earlier_library_made(world: World) -> None:
    world.build()
    copies = {*world.lake.images.files()}
    with world.patch.context() as patch:
        upgrade_code(patch, "99.0")
        sweep_up(world)
    assert copies and {*world.lake.images.files()} == copies
    check(world)


# What fails, at which document.
FAILING: dict[str, tuple[Any, str]] = {
    "A": (documents, "check_candidate"),
    "B": (documents, "settle"),
    "C": (documents, "judge"),
    "D": (quality, "document_problem"),
    "E": (features, "without_images"),
}


def test_an_unforeseen_error_names_a_document_by_its_id(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It named it by the whole of it: its text went into the failures, and into the digest of what was read."""
    for key, (module, name) in FAILING.items():
        monkeypatch.setattr(module, name, failing_at(key, getattr(module, name)))
    settings = {"documents.min_images=1", "documents.is_judged_after_dedupe=true", "quality.max_images_per_word=9"}
    world.change(ids=(*FAILING, "F"), settings=frozenset(settings))
    found = rows(world.build(), "failures")
    unforeseen = [row for row in found if row["exception"] == "ZeroDivisionError"]
    assert sorted(row["record_id"] for row in unforeseen) == [*FAILING]
    assert {row["reason"] for row in unforeseen} == {"broken-record"}
    assert not any(f"of {key} alone" in repr(found) for key in FAILING)


def failing_at(key: str, function: Any) -> Any:
    """Return a function that fails at a document, and else does as another one."""

    def fail(*args: Any, **options: Any) -> Any:
        if f"of {key} alone" in repr(args):
            raise ZeroDivisionError("unforeseen")
        return function(*args, **options)

    return fail
