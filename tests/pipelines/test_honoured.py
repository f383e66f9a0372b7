"""A build on the recorded web honours what hosts and authors say, each for its own reason, and its manifest says so."""

import json
from pathlib import Path

from builds import PLAIN, rows
from builds import build as build_file
from recorded_lakes import RECORDING, RecordedWeb

from pipelines.run import BuildSummary

IMAGES = json.loads((RECORDING / "images.json").read_text(encoding="utf-8"))
HOSTS = ("i.imgur.com", "reserved.example", "untrained.example")


def build(web: RecordedWeb, tmp_path: Path, *settings: str) -> BuildSummary:
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
        summary = build(web, tmp_path)
        assert failures(summary) == {1: "robots-tag", 2: "tdm-reserved", 3: "ai-txt-denied"}
        asked = [(host, path) for host, path, _ in web.requests]
        assert len(asked) == len(set(asked)), "a file of a host was asked for twice"
        assert not any(path.endswith(".jpg") for host, path in asked if host != "i.imgur.com")
        assert all(
            summary.manifest.stages["images"][name] == number for name, number in (("failed", 0), ("rejected", 3))
        )
        assert summary.manifest.config["http"] == {
            "obey_ai_txt": True, "obey_content_usage": True, "obey_robots": True, "obey_robots_tags": True,
            "obey_tdm": True,
        }  # fmt: skip
        assert "http.obey_tdm = true" in (Path(summary.path) / "README.md").read_text(encoding="utf-8")

        free = build(web, tmp_path, "http.obey_tdm=false", "http.obey_ai_txt=false")
        assert failures(free) == {1: "robots-tag"}
        assert free.manifest.version != summary.manifest.version
