"""Numbers for Prometheus: what the pages answered, what a lake says, and that they are nobody's without a token."""

import os
import shutil
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from securesystemslib.signer import CryptoSigner

from newsroom.pages.app import create_app
from newsroom.pages.state import PagesSettings
from schemas.lake import Lake
from training.promotions.chain import Chain
from training.promotions.record import JUDGED

RELEASE = Path(__file__).parents[2] / "fixtures" / "formats" / "0.1.0"
MODEL = "multilink-documents-closed-form"
TOKEN = "a-token-of-24-characters"


@pytest.fixture
def settings(tmp_path: Path) -> PagesSettings:
    shutil.copytree(RELEASE / "lake", tmp_path / "lake")
    return PagesSettings(lake=str(tmp_path / "lake"), store=f"sqlite:///{tmp_path}/pages.sqlite", token=TOKEN)


def scraped(client: TestClient, wanted: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
    """Return the numbers of some series, by their names and the values of their labels."""
    answer = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.headers["content-type"].startswith("text/plain")
    families = list(text_string_to_metric_families(answer.text))
    assert len({family.name for family in families}) == len(families)  # each is there once
    samples = [sample for family in families for sample in family.samples]
    found = {(sample.name, *sorted(sample.labels.values())): sample.value for sample in samples}
    return {each: found[f"multilink_{each[0]}", *sorted(each[1:])] for each in wanted}


def test_a_scrape_says_what_the_lake_and_the_gate_did(settings: PagesSettings) -> None:
    chain = Chain(Lake.at(settings.lake).promotions(MODEL))
    (promoted,) = chain.statements()
    assert chain.append(promoted, [], {"event": JUDGED, "model": dict(promoted.model)}, CryptoSigner.generate_ed25519())
    (manifest,) = Path(settings.lake).glob("datasets/documents/*/manifest.json")
    os.utime(manifest, (1_000_000_000, 1_000_000_000))
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        expected = {
            ("dataset_made_timestamp_seconds", "documents"): 1_000_000_000,
            ("dataset_documents", "documents"): 24 + 10 + 3,
            ("dataset_failed_share", "documents", "images"): 0,
            ("refusals_since_champion", MODEL): 1,
            ("champion_since_timestamp_seconds", MODEL): datetime.fromisoformat(promoted.predicate["at"]).timestamp(),
            ("unreadable", "promotions", MODEL): 0,
            ("free_bytes",): pytest.approx(shutil.disk_usage(settings.lake).free, rel=0.05),
        }
        assert scraped(client, expected) == expected
        (Path(settings.lake) / "promotions" / MODEL / "000001.json").unlink()
        manifest.write_text("{")
        expected = dict.fromkeys([("unreadable", "promotions", MODEL), ("unreadable", "dataset", "documents")], 1)
        assert scraped(client, expected) == expected


def test_requests_are_counted_by_their_route_and_not_by_their_address(settings: PagesSettings) -> None:
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        assert client.get("/metrics").status_code == 401  # as every page, for those who have no token
        for path in ("/health", "/nothing/1", "/nothing/2"):
            client.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
        expected = {
            ("http_requests_total", "/health", "200"): 1,
            ("http_requests_total", "other", "404"): 2,
            ("http_requests_total", "other", "401"): 1,
            ("http_request_seconds_count", "/health"): 1,
            ("http_requests_open",): 1,  # this one
        }
        assert scraped(client, expected) == expected
