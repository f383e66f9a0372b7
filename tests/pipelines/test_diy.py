"""The `diy` data set from the recorded web: every post's outcome, both ways in, builds that are killed, and opt-outs.

What is expected is `expected.json`, written by the recorder from what it meant, not by the code under test.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from builds import PLAIN, adds_up, build_of, documents_of, rows, tree
from builds import build as build_file
from forked import Running, clean_environment, start
from recorded_lakes import RECORDING, RecordedWeb
from shared_pictures import SEVERAL, check_reading

from orchestration.demo.recorded_web import dumps_of, web_settings
from pipelines.run import BuildSummary
from schemas.lake import Lake

EXPECTED = json.loads((RECORDING / "expected.json").read_text(encoding="utf-8"))
KEYS = {"REDDIT_CLIENT_ID": "an-id-7351", "REDDIT_CLIENT_SECRET": "a-secret-9264", "IMGUR_CLIENT_ID": "an-id-4486"}
FIRST = f"source.dump={RECORDING / 'RS_first40.bz2'}"
# The recorder's word for an outcome, and the reasons of this project that mean it.
REASONS = {
    "low-score": {"low-score"},
    "not-an-album": {"not-an-album"},
    "album-gone": {"not-found"},
    "opted-out": {"robots-meta", "tdm-reserved"},
    "deleted-by-author": {"deleted-record"},
    "too-few-images": {"too-few-images", "too-few-sentences"},  # some posts have too few of either
    "too-few-captions": {"too-few-sentences"},
    "too-many-images": {"too-many-images"},
    "duplicate-image": {"duplicate-image"},
    "malformed-record": {"broken-record", "missing-field"},
}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def web() -> Iterator[RecordedWeb]:
    with RecordedWeb(RECORDING) as served:
        yield served


def build(web: RecordedWeb, lake: Path, *settings: str) -> BuildSummary:
    return build_of("diy", lake, *web_settings(dumps_of(RECORDING), web.port), *PLAIN, *settings)


@pytest.mark.trial  # `test_corpora.py` has other sources
def test_posts_that_share_pictures(web: RecordedWeb, tmp_path: Path) -> None:
    built = build(web, tmp_path / "lake", *SEVERAL)
    assert check_reading(Lake.at(str(tmp_path / "lake")), built.manifest) > 0


def sizes(summary: BuildSummary) -> dict[str, tuple[int, int]]:
    return {key: (len(row["images"]), len(row["sentences"])) for key, row in documents_of(summary).items()}


def expected_sizes() -> dict[str, tuple[int, int]]:
    return {i: (post["images"], post["sentences"]) for i, post in EXPECTED.items() if post["outcome"] == "keep"}


@pytest.mark.slow
def test_every_post_ends_as_its_recorder_meant_by_dump_and_by_apis(web: RecordedWeb, tmp_path: Path) -> None:
    """One lake for all builds: the way by the APIs comes last, and asks for no picture again."""
    summary = build(web, tmp_path / "lake")
    assert sizes(summary) == expected_sizes()
    placed = 0
    for row in documents_of(summary).values():
        after = row["after_sentence"]
        assert after == sorted(after) and len(after) == len(row["images"])
        assert all(after[link["image"]] == link["sentence"] for link in row["links"])  # beside its caption
        placed += len(after)
    assert placed == sum(row.placed_images for row in summary.manifest.splits.values())
    reasons: dict[str, set[str]] = {}
    for row in rows(summary, "failures"):
        if row["image"] is None:
            reasons.setdefault(row["record_id"], set()).add(row["reason"])
    for post, meant in EXPECTED.items():
        if meant["reason"] in REASONS and post in reasons:
            assert reasons[post] <= REASONS[meant["reason"]], post
        elif meant["outcome"] == "drop":
            unnamed = {"other-subreddit", "duplicate-record", "malformed-record"}  # no record of its own to name
            assert meant["reason"] in unnamed, post
    assert reasons.pop("RS_recorded.zst:447") == {"broken-record"}  # the line that was cut off
    duplicates = rows(summary, "duplicates")
    dropped = {row["document"] for row in duplicates if row["is_dropped"]}
    assert dropped == {post for post, meant in EXPECTED.items() if meant["reason"] == "duplicate-image"}
    assert all(row["distance"] <= 3 for row in duplicates)
    assert adds_up(summary)

    asked = len(web.requests)
    again = build(web, tmp_path / "lake")
    assert again.is_reused
    assert again.manifest == summary.manifest
    tries = Counter(path for _, path, _ in web.requests[:asked])  # what failed for the moment was tried again at once
    assert all(tries[path] > 1 for _, path, _ in web.requests[asked:]), "a second build fetched something it had"

    address = f"http://127.0.0.1:{web.port}"
    by_apis = build(
        *(web, tmp_path / "lake"),
        *("source.kind=api", "source.listing=new", "source.albums=api"),
        *(f"source.reddit_url={address}", f"source.oauth_url={address}"),
    )
    assert sizes(by_apis) == expected_sizes()
    paths = [path.partition("?")[0] for _, path, _ in web.requests[asked:] if tries[path] < 2]
    assert paths.count("/r/DIY/new") == 4  # about 400 posts, 100 a page
    assert not any(path.startswith("/a/") or path.endswith(".jpg") for path in paths)


@pytest.mark.trial
def test_a_build_killed_at_any_moment_ends_as_if_it_was_not(tmp_path: Path) -> None:
    def begin(lake: Path, port: int) -> Running:
        settings = [s for s in web_settings(dumps_of(RECORDING), port) if not s.startswith("source.dump=")]
        settings += [FIRST, "http.connections_per_host=2", "features.images=colour-shape"]
        command = ["build", "diy", "--lake", str(lake)]
        command += [part for setting in settings for part in ("--set", setting)]
        return start(*command, folder=tmp_path, environment=clean_environment())

    with RecordedWeb(RECORDING, latency_s=0.02) as web:
        began = time.monotonic()
        assert begin(tmp_path / "calm", web.port).finish().status == 0
        took_s, calmly = time.monotonic() - began, len(web.requests)
    with RecordedWeb(RECORDING, latency_s=0.02) as web:
        for stop_at in (calmly // 8, 2 * calmly // 3):  # among albums, among pictures
            build = begin(tmp_path / "killed", web.port)
            while build.process.is_alive() and len(web.requests) < stop_at:
                time.sleep(0.005)
            kill(build)
        build = begin(tmp_path / "killed", web.port)
        time.sleep(0.7 * took_s)  # past fetching: among features and shards
        kill(build)
        assert begin(tmp_path / "killed", web.port).finish().status == 0
    assert tree(tmp_path / "killed" / "datasets") == tree(tmp_path / "calm" / "datasets")


def kill(build: Running) -> None:
    """Kill a build; its workers end by themselves within seconds."""
    build.process.kill()
    build.finish()


IMAGES = json.loads((RECORDING / "images.json").read_text(encoding="utf-8"))
HOSTS = ("i.imgur.com", "reserved.example", "untrained.example")


def build_opted_out(web: RecordedWeb, tmp_path: Path, *settings: str) -> BuildSummary:
    address = f"127.0.0.1:{web.port}"
    plain = [name for name, entry in IMAGES.items() if "behaviour" not in entry and entry["type"] == "image/jpeg"][:3]
    opted_out = next(name for name, entry in IMAGES.items() if entry.get("behaviour") == "opted-out")
    images = [f"http://i.imgur.com/{name}.jpg" for name in (plain[0], opted_out)]
    images += [f"http://reserved.example/{plain[1]}.jpg", f"http://untrained.example/{plain[2]}.jpg"]
    record = {"id": "a", "language": "en", "sentences": ["A canvas."], "images": [{"url": url} for url in images]}
    path = tmp_path / "documents.jsonl"
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    hosts = ",".join(f"{host}={address}" for host in HOSTS)
    quick = (f"http.allow_hosts={address}", f"http.connect_to={hosts}", "http.requests_per_second=1000")
    return build_file(path, tmp_path / "lake", *PLAIN, *quick, *settings)


def failures(summary: BuildSummary) -> dict[int, str]:
    return {row["image"]: row["reason"] for row in rows(summary, "failures")}


def test_opt_outs_are_honoured_with_their_reasons(tmp_path: Path) -> None:
    with RecordedWeb(RECORDING) as web:
        summary = build_opted_out(web, tmp_path)
        assert failures(summary) == {1: "robots-tag", 2: "tdm-reserved", 3: "ai-txt-denied"}
        asked = [(host, path) for host, path, _ in web.requests]
        assert len(asked) == len(set(asked)), "a file of a host was asked for twice"
        assert not any(path.endswith(".jpg") for host, path in asked if host != "i.imgur.com")
        assert [summary.manifest.stages["images"][name] for name in ("failed", "rejected")] == [0, 3]
        assert summary.manifest.config["http"] == {
            "obey_ai_txt": True, "obey_content_usage": True, "obey_robots": True, "obey_robots_tags": True,
            "obey_tdm": True,
        }  # fmt: skip
        assert "http.obey_tdm = true" in (Path(summary.path) / "README.md").read_text(encoding="utf-8")

        free = build_opted_out(web, tmp_path, "http.obey_tdm=false", "http.obey_ai_txt=false")
        assert failures(free) == {1: "robots-tag"}
        assert free.manifest.version != summary.manifest.version
