"""Builds of `diy` from the recorded web."""

from __future__ import annotations

import sys
from pathlib import Path

from orchestration.demo.recorded_web import web_settings
from pipelines.config import recipe
from pipelines.run import BuildSummary, build_dataset
from schemas.lake import Lake
from schemas.overrides import override

REPLAY = Path(__file__).resolve().parents[2] / "replay"
RECORDING = REPLAY / "recording"
sys.path.insert(0, str(REPLAY))
from server import RecordedWeb  # noqa: E402

__all__ = ["RECORDING", "RecordedWeb", "built"]


def built(lake: Path, port: int, *settings: str) -> BuildSummary:
    """Build `diy` of the first 40 posts of the recorded web, with features that need no network."""
    given = web_settings([RECORDING / "RS_first40.bz2"], port)
    config = override(recipe("diy"), [*given, "features.images=colour-shape", "features.sentences=", *settings])
    return build_dataset(config, lake=Lake.at(str(lake)), say=lambda _: None)
