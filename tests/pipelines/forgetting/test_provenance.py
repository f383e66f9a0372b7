"""Everything known of a document: addresses, times, answers, versions and what was made of them."""

from __future__ import annotations

import hashlib

import pytest
from lake_bytes import rows_of

from pipelines.forgetting.holdings import provenance
from pipelines.raw import RawStore
from schemas.errors import NotFoundError
from schemas.lake import Lake
from schemas.raw import RawEntry


def test_a_document_is_followed_from_its_page_to_its_versions(lake: Lake) -> None:
    row = next(each for each in rows_of(lake, str(lake.latest("diy")), "documents") if len(each["images"]) > 2)
    known = provenance(lake, "diy", row["id"])
    assert {held["version"] for held in known["versions"]} == set(lake.versions("diy"))
    (latest,) = (held for held in known["versions"] if held["is_latest"])
    assert [each["text"] for each in latest["sentences"]] == [each["text"] for each in row["sentences"]]
    assert [each["hash"] for each in latest["images"]] == [each["hash"] for each in row["images"]]
    assert any(each["kind"] == "document" and "/a/" in each["captured"] for each in latest["retrieved"])
    store = RawStore(lake.raw)
    by_kind: dict[str, list[str]] = {}
    for answer in known["answers"]:
        (entry,) = store.find_many(
            answer["source"], [hashlib.sha256(f"{answer['kind']}\n{answer['url']}".encode()).hexdigest()]
        )
        assert isinstance(entry, RawEntry)
        assert hashlib.sha256(store.body(answer["source"], entry)).hexdigest() == answer["digest"]
        by_kind.setdefault(answer["kind"], []).append(answer["digest"])
    assert len(by_kind["page"]) == 1
    assert sorted(by_kind["image"]) == sorted(each["hash"] for each in row["images"])
    assert {answer["status"] for answer in known["answers"]} == {200}
    assert any("features.colour-shape" in each for each in latest["made_with"])


def test_what_is_not_there_is_told(lake: Lake) -> None:
    with pytest.raises(NotFoundError, match="no document 'nosuch'"):
        provenance(lake, "diy", "nosuch")
