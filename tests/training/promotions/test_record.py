"""What follows from statements, without a registry: whose count, approvals, the best champion and its candidates."""

from pathlib import Path
from typing import Any

import pytest
from securesystemslib.signer import CryptoSigner, Key
from statements import decided, registered, state, version

from schemas.errors import IntegrityError, NotFoundError
from schemas.lake import Lake
from training.promotions.record import (
    ADOPTED,
    APPROVED,
    CHANGED,
    EVALUATED,
    JUDGED,
    TAINTED,
    Approval,
    ModelVersion,
    Record,
    Signatures,
    lake_of,
    read_record,
)


@pytest.mark.parametrize(
    "lake",
    [
        "/data/lake",
        "/data/lake?",
        "s3://bucket/lake",
        "s3://bucket/a/lake?region=eu&endpoint=http://127.0.0.1:9000",
    ],
)
def test_statements_lie_in_their_lake_whatever_its_address(lake: str) -> None:
    assert lake_of(Lake.at(lake).promotions("linker")) == Lake.at(lake)


def test_no_alias_makes_a_champion(tmp_path: Path) -> None:
    assert read_record(registered(tmp_path)).champion is None
    assert read_record(registered(tmp_path, tags={})).home is None
    state(tmp_path, CHANGED, "1", champions=["1"], decision={})
    record = read_record(registered(tmp_path))
    assert record.champions == ("1",) and record.token == record.statements[0].digest
    with pytest.raises(IntegrityError, match=r"alias champion of linker is version 4; by .*000001\.json it is 1"):
        record.number("champion")
    with pytest.raises(IntegrityError, match=r"incomplete \(1 of 2 statements\): restore .* from a backup"):
        read_record(registered(tmp_path, count=2))
    with pytest.raises(NotFoundError, match="no version 'challenger' of model 'linker' in "):
        record.number("challenger")


def test_statements_about_another_model_are_refused_until_somebody_answers_for_them(tmp_path: Path) -> None:
    changed = {"name": "other"}
    state(tmp_path, CHANGED, "1", champions=["1"], decision={})
    assert not read_record(registered(tmp_path, created="8")).statements  # made anew, or in another registry
    with pytest.raises(IntegrityError, match=r"000001\.json: is about 'linker'"):
        read_record(registered(tmp_path, **changed))
    state(tmp_path, ADOPTED, "1", model=changed, champions=["1"], best="1")
    record = read_record(registered(tmp_path, **changed))
    assert record.champion == "1" and len(record.statements) == 2


@pytest.mark.parametrize("other", [None, version("2", digest="other"), version("2", run="r9")])
def test_a_number_is_no_identity(tmp_path: Path, other: ModelVersion | None) -> None:
    """The version was deleted, or its number was given to another: nothing that is stated is about that."""
    state(tmp_path, JUDGED, "2", decision=decided("2", None, None))
    state(tmp_path, APPROVED, "2", approved_by="Ann")
    state(tmp_path, TAINTED, "2", dataset="diy@v1", documents=1, images=1)
    state(tmp_path, CHANGED, "2", champions=["2", "1"], decision=decided("2", None, None, "2"))
    model = registered(tmp_path, aliases={"champion": "2"})
    there, gone = read_record(model), registered(tmp_path, aliases={"champion": "2"}, versions={"1": version("1")})
    assert there.number("champion") == "2" and there.promotion("2") and there.approvals("2") and there.taint("2")
    if other is not None:
        gone.versions["2"] = other  # type: ignore[index]
    record = read_record(gone)
    assert record.champion == record.best == "2" and not record.is_there("2")
    with pytest.raises(IntegrityError, match=r"000004\.json: names models:/linker/2, and .* multilink rollback"):
        record.number("champion")
    if other is not None:
        assert not record.approvals("2") and record.promotion("2") is record.taint("2") is None
        assert record.attempt("2", "diy@v1", "val") == 1


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
    assert record().about("2", JUDGED)[-1].decision["champion_before"] == "1"


def test_a_candidate_that_was_chosen_from_several_counts_as_all_of_them(tmp_path: Path) -> None:
    """Of a sweep once, of another measure again."""

    def attempt(version: str, **how: Any) -> int:
        return read_record(registered(tmp_path)).attempt(version, "diy@v1", "val", **how)

    state(tmp_path, CHANGED, "1", champions=["1"], decision=decided("1", None, None, "1"))
    assert attempt("2", study="sweep a", cells=30) == 30
    state(tmp_path, JUDGED, "2", decision=decided("2", "1", "1") | {"study": "sweep a", "cells": 30})
    assert attempt("3", study="sweep a", cells=30) == 30 and attempt("3", study="sweep a", cells=40) == 40
    assert attempt("3", study="sweep b", cells=5) == 35 and attempt("3") == 31
    assert attempt("2", measure="auc", study="sweep a", cells=30) == 60
    for number in ("4", "5"):  # scored by hand on the documents of the gate
        look = {"dataset": "diy@v1", "split": "val", "champion_before": "1", "best_before": "1"}
        state(tmp_path, EVALUATED, number, decision=look)
    assert attempt("3") == 33 and attempt("4") == 32 and attempt("5", measure="auc") == 33


def test_an_approval_is_by_a_name_and_where_a_policy_says_so_by_a_key(tmp_path: Path) -> None:
    ann, bo = CryptoSigner.generate_ed25519(), CryptoSigner.generate_ed25519()
    for by, signer in (("Ann", ann), ("Bo", bo)):
        state(tmp_path, APPROVED, "1", signer, approved_by=by, files={"a": "1"})
    keys: list[Key] = [ann.public_key, bo.public_key]
    record, key = read_record(registered(tmp_path), keys=keys), ann.public_key.keyid
    approvals = [Approval("Ann", (key,)), Approval("Bo", (bo.public_key.keyid,))]
    assert record.approvals("1") == record.approvals("1", {"a": "1"}) == approvals
    assert record.approvals("1", {"a": "2"}) == record.approvals("2", {"a": "1"}) == []
    assert record.approvals("1", before=2) == approvals[:1]
    for approver, is_by in (("Ann", True), (f"Ann:{key[:12]}", True), (f"Ann:{bo.public_key.keyid}", False)):
        assert approvals[0].is_by(approver) is is_by
    assert not Approval("Ann").is_by(f"Ann:{key}") and not approvals[1].is_by("Ann")


@pytest.mark.parametrize(
    ("event", "missing"),
    [
        (CHANGED, "champions, decision"),
        (APPROVED, "approved_by"),
        (TAINTED, "dataset, documents, images"),
        ("x", "kind"),
    ],
)
def test_a_statement_that_lacks_what_its_kind_needs_is_named(tmp_path: Path, event: str, missing: str) -> None:
    state(tmp_path, event, "1")
    with pytest.raises(IntegrityError, match=rf"000001\.json: expected .*{missing}.* of '{event}'"):
        read_record(registered(tmp_path))


def test_a_signed_record_and_an_unsigned_one_are_never_mixed(tmp_path: Path) -> None:
    ann, eve = CryptoSigner.generate_ed25519(), CryptoSigner.generate_ed25519()
    keys = [ann.public_key]
    state(tmp_path, CHANGED, "1", champions=["1"], decision={})
    assert read_record(registered(tmp_path), keys=[]).signatures is Signatures.NONE
    with pytest.raises(IntegrityError, match=r"000001\.json: expected a trusted key's signature, found none.* --adopt"):
        read_record(registered(tmp_path), keys=keys)
    state(tmp_path, JUDGED, "2", eve, decision={})
    for trusted in ([], keys):
        with pytest.raises(IntegrityError, match=r"00000[12]\.json: expected a trusted key's signature"):
            read_record(registered(tmp_path), keys=trusted)
    state(tmp_path, ADOPTED, "1", ann, champions=["1"], best="1")
    record = read_record(registered(tmp_path), keys=keys)
    assert record.signatures is Signatures.VERIFIED and record.champion == "1"
    assert {each.signers for each in record.statements} == {(ann.public_key.keyid,)}  # who answers for them
    assert read_record(registered(tmp_path), keys=[]).signatures is Signatures.UNCHECKED
    assert not any(each.signers for each in read_record(registered(tmp_path), keys=[]).statements)
    state(tmp_path, ADOPTED, "1", eve, champions=["3"], best="3")
    with pytest.raises(IntegrityError, match=rf"000004\.json: .* by the key {eve.public_key.keyid[:12]}"):
        read_record(registered(tmp_path), keys=keys)
    state(tmp_path, ADOPTED, "1", ann, champions=["1"], best="1")  # who adopts last answers for all before
    assert read_record(registered(tmp_path), keys=keys).champion == "1"
