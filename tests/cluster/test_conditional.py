"""Conditional requests on a real S3 server: each writer sees what the one before it wrote, and none is undone."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import obstore
import pytest
from bench import Bench

from schemas.lake import LATEST, Folder, Lake

Found = Callable[[str], None]
WRITERS = 8


def conditions_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that the condition of every put goes into, refused ones too."""
    conditions: list[str] = []
    put = obstore.put

    def noted(*arguments: Any, mode: Any) -> object:
        conditions.append("IfNoneMatch" if mode == "create" else "IfMatch")
        return put(*arguments, mode=mode)

    monkeypatch.setattr(obstore, "put", noted)
    return conditions


def test_writers_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch, found: Found) -> None:
    """`latest` written by eight at once: `If-None-Match` for the first, `If-Match` for the others."""
    lake = Lake.at("s3://lake/conditional")
    conditions = conditions_of(monkeypatch)
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda number: lake.point_latest("diy", f"v{number}"), range(WRITERS)))
    assert lake.latest("diy") in {f"v{number}" for number in range(WRITERS)}
    written = len(conditions)
    assert conditions.count("IfMatch") >= WRITERS - 1 and conditions.count("IfNoneMatch") >= 1
    assert written >= WRITERS  # refused ones are made again from what is there
    lake.point_latest("diy", lake.latest("diy") or "")
    assert len(conditions) == written  # what is there already is not written again
    names = Folder("s3://lake/conditional").files()
    assert list(names) == [f"datasets/diy/{LATEST}"]  # no lock file, no folder's marker
    found(f"{WRITERS} writers, {written - WRITERS} requests refused and made again")
