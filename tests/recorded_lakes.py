"""The recorded web, and builds of `diy` from it."""

import sys
from pathlib import Path

from builds import build_of

from orchestration.demo.recorded_web import web_settings
from pipelines.run import BuildSummary

REPLAY = Path(__file__).resolve().parent / "replay"
RECORDING = REPLAY / "recording"
sys.path.insert(0, str(REPLAY))
from server import RecordedWeb  # noqa: E402

__all__ = ["RECORDING", "RecordedWeb", "built"]


def built(lake: Path, port: int, *settings: str) -> BuildSummary:
    """Build `diy` of the first 40 posts of the recorded web, with features that need no network."""
    given = web_settings([RECORDING / "RS_first40.bz2"], port)
    return build_of("diy", lake, *given, "features.images=colour-shape", "features.sentences=", *settings)
