"""ONNX Runtime reports its use to its maker, from its import on, unless it is told not to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("module", ["pipelines.features.pixels", "pipelines.features.extractors.use_multilingual"])
def test_nothing_is_reported_to_the_maker_of_the_runtime(module: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    code = f"import {module}, onnxruntime"
    subprocess.run([sys.executable, "-c", code], env=environment | {"TMPDIR": str(tmp_path)}, check=True)
    assert list(tmp_path.iterdir()) == []  # else there is a file of its session with the collector
