"""What follows from statements, without a registry: their lake, approvals, the best champion and its candidates."""

from pathlib import Path
from typing import Any

import pytest
from securesystemslib.signer import CryptoSigner

from schemas.errors import IntegrityError, NotFoundError
from schemas.lake import Folder, Lake
from training.promotions.chain import Chain
from training.promotions.record import (
    APPROVED,
    CHANGED,
    JUDGED,
    TAKEN_OVER,
    Approval,
    Record,
    Registered,
    lake_of,
    read_record,
)

SUBJECT = [{"name": "models:/linker/1", "digest": {"sha256": "0" * 64}}]


def registered(home: Path, *, count: int = 0, **changed: Any) -> Registered:
    versions = {str(number): {"model_digest": "d"} for number in range(1, 6)}
    tags = {"promotions": str(home), "promotions_count": str(count)}
    own = {"name": "linker", "created": "7", "aliases": {"champion": "4"}, "tags": tags, "versions": versions}
    return Registered(**own | changed)


def state(home: Path, event: str, version: str, signer: CryptoSigner | None = None, **predicate: Any) -> None:
    chain = Chain(Folder(str(home)))
    statements, about = chain.statements(), {"name": "linker", "created": "7", "version": version, "digest": "d"}
    last = statements[-1] if statements else None
    assert chain.append(last, SUBJECT, {"event": event, "model": about, **predicate}, signer)


def decided(version: str, before: str | None, best: str | None, best_now: str | None = None) -> dict[str, Any]:
    names = {"version": version, "champion_before": before, "best_before": best, "best": best_now or best}
    return {**names, "dataset": "diy@v1", "split": "val", "checks": [], "policy": {}}


@pytest.mark.parametrize(
    "lake",
    ["/data/lake", "s3://bucket/lake", "s3://bucket/a/lake?region=eu&endpoint_override=http://127.0.0.1:9000"],
)
def test_statements_lie_in_their_lake_whatever_its_address(lake: str) -> None:
    assert lake_of(Lake.at(lake).promotions("linker")) == Lake.at(lake)


def test_before_there_are_statements_the_aliases_count_and_then_no_more(tmp_path: Path) -> None:
    assert read_record(registered(tmp_path)).current.champions == ("4",)
    assert read_record(registered(tmp_path, tags={})).home is None
    state(tmp_path, CHANGED, "1", champions=["1"], decision={})
    record = read_record(registered(tmp_path))
    assert record.current.champions == ("1",) and record.current.statement == record.statements[0]
    assert read_record(registered(tmp_path, created="8")).current.champions == ("4",)  # an earlier model's
    with pytest.raises(IntegrityError, match=r"incomplete \(1 of 2 statements\): restore .* from a backup"):
        read_record(registered(tmp_path, count=2))
    with pytest.raises(NotFoundError, match="no version 'challenger' of model 'linker'; versions: 1, 2, 3, 4, 5"):
        record.model.number("challenger")


def test_the_best_champion_and_how_many_candidates_it_has_met(tmp_path: Path) -> None:
    def record() -> Record:
        return read_record(registered(tmp_path))

    state(tmp_path, CHANGED, "1", champions=["1"], decision=decided("1", None, None, "1"))
    assert (record().best, record().attempt("2", "diy@v1", "val")) == ("1", 1)
    state(tmp_path, JUDGED, "2", decision=decided("2", "1", "1"))
    assert record().attempt("2", "diy@v1", "val") == 1  # the same once more
    assert record().attempt("2", "diy@v2", "val") == record().attempt("2", "diy@v1", "gate") == 2
    assert record().attempt("3", "diy@v1", "val") == 2
    state(tmp_path, CHANGED, "3", champions=["3", "1"], decision=decided("3", "1", "1"))
    assert (record().best, record().attempt("2", "diy@v1", "val")) == ("1", 3)  # beside another champion
    state(tmp_path, CHANGED, "4", champions=["4", "3", "1"], decision=decided("4", "3", "1", "4"))
    assert (record().best, record().attempt("5", "diy@v1", "val")) == ("4", 1)
    judged = record().judgement("2")
    assert judged is not None and judged["champion_before"] == "1"
    without = registered(tmp_path, versions={"1": {}, "3": {}})
    assert read_record(without).current.champions == ("3", "1") and read_record(without).best == "1"


def test_the_log_of_an_earlier_release_is_read_from_registry_and_statement_alike(tmp_path: Path) -> None:
    entry = {"champions": ["2", "1"], "token": "t", "decision": '{"best": "1"}', "since_ms": 1_700_000_000_000}
    before = read_record(registered(tmp_path, log=[entry]))
    state(tmp_path, TAKEN_OVER, "2", entries=[entry])
    after = read_record(registered(tmp_path))
    assert before.changes == after.changes and after.current.champions == ("2", "1") and after.best == "1"
    assert after.current.at == "2023-11-14T22:13:20+00:00" and after.promotion("2") is None


def test_an_approval_is_by_a_name_and_where_a_policy_says_so_by_a_key(tmp_path: Path) -> None:
    ann, other = CryptoSigner.generate_ed25519(), CryptoSigner.generate_ed25519()
    for by, signer in (("Ann", ann), ("Bo", None)):
        state(tmp_path, APPROVED, "1", signer, approved_by=by)
    record, keys = read_record(registered(tmp_path)), [ann.public_key, other.public_key]
    key = ann.public_key.keyid
    assert record.approvals("1", "d", keys) == [Approval("Ann", (key,)), Approval("Bo")]
    assert record.approvals("1", "d", [other.public_key]) == [Approval("Ann"), Approval("Bo")]
    assert record.approvals("1", "other files", keys) == record.approvals("2", "d", keys) == []
    assert record.approvals("1", "d", keys, before=2) == [Approval("Ann", (key,))]
    for approver, is_by in (("Ann", True), (f"Ann:{key[:12]}", True), (f"Ann:{other.public_key.keyid}", False)):
        assert Approval("Ann", (key,)).is_by(approver) is is_by
    assert not Approval("Ann").is_by(f"Ann:{key}") and not Approval("Bo", (key,)).is_by("Ann")


@pytest.mark.parametrize(
    ("event", "missing"),
    [(CHANGED, "champions, decision"), (APPROVED, "approved_by"), ("tainted", "dataset, documents, images")],
)
def test_a_statement_that_lacks_what_its_kind_needs_is_named(tmp_path: Path, event: str, missing: str) -> None:
    state(tmp_path, event, "1")
    with pytest.raises(IntegrityError, match=rf"000001\.json: expected {missing} of '{event}'"):
        read_record(registered(tmp_path))
