"""Every single change of a valid signed record: nothing that anybody reads changes, or it is refused with its place.

The record is small, and has every kind of statement. Who attacks can write lake and registry, and has a key that nobody
trusts; so each change is made as it is, with the chain mended after it by that key, or by copied signatures.
"""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner
from statements import decided, registered, state, version

from schemas.lake import Folder
from schemas.messages import IntegrityError, NotFoundError
from schemas.versions import canonical_json
from training.promotions.chain import PAYLOAD_TYPE
from training.promotions.proof import championships
from training.promotions.record import (
    ADOPTED,
    APPROVED,
    CHANGED,
    EVALUATED,
    JUDGED,
    TAINTED,
    Record,
    read_record,
    trusted_statements,
)

ANN, EVE = CryptoSigner.generate_ed25519(), CryptoSigner.generate_ed25519()
KEYS = [ANN.public_key]
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    home = tmp_path_factory.mktemp("record")
    state(home, JUDGED, "3", decision=decided("3", None, None))  # unsigned: before there was a key
    state(home, ADOPTED, "3", ANN, champions=[], best=None)
    state(home, CHANGED, "1", ANN, champions=["1"], decision=decided("1", None, None, "1"), files={"a": "1"})
    state(home, APPROVED, "2", ANN, approved_by="Ann", files={"a": "2"})
    state(home, CHANGED, "2", ANN, champions=["2", "1"], decision=decided("2", "1", "1", "2"), files={"a": "2"})
    state(home, TAINTED, "1", ANN, dataset="diy@v1", documents=1, images=1)
    state(home, JUDGED, "3", ANN, decision=decided("3", "2", "2"))
    state(home, EVALUATED, "4", ANN, decision=decided("4", "2", "2") | {"study": "sweep a", "cells": 3})
    return {path.name: path.read_bytes() for path in sorted(home.iterdir())}


def _readings(home: Path, **model: Any) -> object:
    """Return all that anybody reads of a record."""
    record: Record = read_record(registered(home, **{"aliases": {"champion": "2"}, "count": 8, **model}), keys=KEYS)
    versions = "12345"
    return (
        record.champions,
        record.best,
        record.number("champion"),
        [record.attempt(each, "diy@v1", "val") for each in versions],
        [record.approvals(each) for each in versions],
        [record.taint(each) for each in versions],
        [promotion.policy for each in versions if (promotion := record.promotion(each))],
        championships(record),
        [each.predicate for each in trusted_statements(Folder(str(home)), KEYS)],
    )


def _statement(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    envelope = json.loads(data)
    return envelope, json.loads(Envelope.from_dict(envelope).payload)


def _signed(statement: dict[str, Any], signer: CryptoSigner | None) -> bytes:
    envelope = Envelope(canonical_json(statement).encode(), PAYLOAD_TYPE, {})
    if signer is not None:
        envelope.sign(signer)
    return (canonical_json(envelope.to_dict()) + "\n").encode()


def _chained(files: list[bytes], start: int, resign: Callable[[dict[str, Any], dict[str, Any]], bytes]) -> list[bytes]:
    """Mend numbers and digests from a place on, as who attacks can; `resign` writes what was changed for that."""
    from hashlib import sha256

    mended = files[:start]
    for number, data in enumerate(files[start:], start=start + 1):
        envelope, statement = _statement(data)
        before = sha256(mended[-1]).hexdigest() if mended else ""
        links = {"number": number, "previous": before}
        if {key: statement["predicate"][key] for key in links} != links:
            statement["predicate"].update(links)
            mended.append(resign(statement, envelope))
        else:
            mended.append(data)
    return mended


def _kept_signature(statement: dict[str, Any], envelope: dict[str, Any]) -> bytes:
    """Return a statement under the signature that another had."""
    changed = json.loads(_signed(statement, None)) | {"signatures": envelope["signatures"]}
    return (canonical_json(changed) + "\n").encode()


SIGNINGS: dict[str, Callable[[dict[str, Any], dict[str, Any]], bytes]] = {
    "another's key": lambda statement, _: _signed(statement, EVE),
    "no signature": lambda statement, _: _signed(statement, None),
    "a copied signature": _kept_signature,
}


def _orders(files: list[bytes]) -> Iterator[tuple[str, int, list[bytes]]]:
    """Yield what can be done with whole statements: name, first place that changes, files."""
    for place in range(len(files)):
        yield f"drop {place + 1}", place, files[:place] + files[place + 1 :]
        yield f"cut from {place + 1}", place, files[:place]
        yield f"replay {place + 1}", len(files), [*files, files[place]]
        yield f"insert {place + 1}", place, [*files[:place], files[place], *files[place:]]
        for other in range(place):
            swapped = list(files)
            swapped[place], swapped[other] = files[other], files[place]
            yield f"swap {other + 1} and {place + 1}", other, swapped
    _, new = _statement(files[4])
    for champions in (["3", "2"], ["1"], ["2", "3"], ["9", "1"]):  # that nobody has promoted, or that is tainted
        new["predicate"]["champions"], new["predicate"]["model"]["version"] = champions, champions[0]
        new["subject"][0]["name"] = f"models:/linker/{champions[0]}"
        yield f"add champions {champions}", len(files), [*files, _signed(new, None)]


def _fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every field of a statement, leaves and branches alike."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from _fields(child, (*path, key))


def _other(value: Any) -> Any:
    return {**value, "x": 1} if isinstance(value, dict) else [*value, "x"] if isinstance(value, list) else f"{value}0"


def _edits(files: list[bytes]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield every field of every statement, dropped or changed: name, place, statement."""
    for place, data in enumerate(files):
        _, statement = _statement(data)
        for *path, last in _fields(statement):
            for what in ("drop", "change"):
                changed = copy.deepcopy(statement)
                parent: Any = changed
                for key in path:
                    parent = parent[key]
                if what == "drop":
                    del parent[last]
                else:
                    parent[last] = _other(parent[last])
                yield f"{what} {'.'.join(map(str, (*path, last)))} of {place + 1}", place, changed


def _attacks(files: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    for name, place, changed in _orders(files):
        yield name, changed
        for how, resign in SIGNINGS.items():
            yield f"{name}, mended with {how}", _chained(changed, place, resign)
    for name, place, statement in _edits(files):
        for how, resign in SIGNINGS.items():
            changed = [*files]
            changed[place] = resign(statement, _statement(files[place])[0])
            if resign is _kept_signature:
                yield f"{name}, with {how}", changed
            try:
                yield f"{name}, mended with {how}", _chained(changed, place + 1, resign)
            except (KeyError, TypeError, AttributeError):
                continue  # the changed statement is none any more
    for place, data in enumerate(files):
        envelope, statement = _statement(data)
        for how, signatures in (
            ("without signature", []),
            ("twice signed", envelope["signatures"] * 2),
            ("signed by another, too", [*envelope["signatures"], *json.loads(_signed(statement, EVE))["signatures"]]),
        ):
            changed = [*files]
            changed[place] = (canonical_json({**envelope, "signatures": signatures}) + "\n").encode()
            yield f"{place + 1} {how}", changed
            yield f"{place + 1} {how}, mended", _chained(changed, place + 1, SIGNINGS["another's key"])


def test_every_change_of_a_record_is_refused_with_its_place_or_changes_nothing(files: Files, tmp_path: Path) -> None:
    home = tmp_path / "linker"
    home.mkdir()
    _write(home, list(files.values()))
    expected = _readings(home)
    outcomes = {"refused": 0, "same": 0}
    for name, changed in _attacks(list(files.values())):
        if changed == list(files.values()):
            continue
        _write(home, changed)
        try:
            found = _readings(home)
        except IntegrityError as problem:
            assert ".json" in str(problem) or "incomplete" in str(problem) or "had statement" in str(problem), name
            outcomes["refused"] += 1
        else:
            assert found == expected, name
            outcomes["same"] += 1
    assert outcomes["refused"] > 1900 and outcomes["same"] < outcomes["refused"] / 100, outcomes


def _write(home: Path, files: list[bytes]) -> None:
    for path in home.iterdir():
        path.unlink()
    for number, data in enumerate(files, start=1):
        (home / f"{number:06}.json").write_bytes(data)


def test_what_the_registry_says_changes_nothing_that_is_stated(files: Files, tmp_path: Path) -> None:
    _write(tmp_path, list(files.values()))
    versions = dict(registered(tmp_path).versions)
    expected = _readings(tmp_path)
    for changed in (
        {"aliases": {"champion": "1"}},
        {"aliases": {}},
        {"name": "other"},
        {"tags": {}},
        {"tags": {"promotions": str(tmp_path / "elsewhere")}},
        {"versions": {number: each for number, each in versions.items() if number != "2"}},
        {"versions": versions | {"2": versions["3"]}},
        {"versions": versions | {"2": version("2", run="r9")}},
    ):
        with pytest.raises((IntegrityError, NotFoundError)):
            _readings(tmp_path, **changed)
    assert _readings(tmp_path, count=0) == expected  # the number of statements is a copy


def test_the_end_of_a_record_is_missed_by_a_machine_that_has_seen_it(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off in the lake, and counted less in the registry: a machine that never saw it cannot know."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = tmp_path / "linker"
    home.mkdir()
    _write(home, list(files.values())[:5])
    _readings(home, count=5)
    _write(home, list(files.values()))
    expected = _readings(home)
    _write(home, list(files.values())[:5])
    with pytest.raises(IntegrityError, match=r"had statement 8, .* restore it from a backup; .* remove .*/state/"):
        _readings(home, count=5)
    with pytest.raises(IntegrityError, match="had statement 8"):
        read_record(registered(home, tags={}), keys=KEYS)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    assert _readings(home, count=5) != expected
