"""No credential is in what a cluster leaves behind: logs, the lake, the registry's tags and parameters, pages."""

import dataclasses
from pathlib import Path
from typing import Any

from bench import Bench, Found


def test_no_credential_is_written(bench: Bench, trained: dict[str, Any], found: Found) -> None:
    """Logs, every object of the lake and of MLflow's artefacts, and tags and parameters, searched for credentials."""
    plan = bench.cluster.plan
    secrets = {
        name: value.encode() for name, value in dataclasses.asdict(plan.secrets).items() if name != "s3_key"
    }  # a key's name is no secret: the server's own log of requests holds it
    files = [path for folder in ("logs", "store", "dagster") for path in (plan.home / folder).rglob("*")]
    files += list(Path(plan.scratch).rglob("*.log")) + list(Path(plan.scratch).rglob("*.out"))
    searched = 0
    for path in files:
        if path.is_file():
            data = path.read_bytes()
            assert not [name for name, value in secrets.items() if value in data], path
            searched += 1
    client = bench.registry
    version = client.get_model_version(trained["model"], trained["version"])
    run = client.get_run(version.run_id)
    told = repr((dict(version.tags), run.data.tags, run.data.params, version.source)).encode()
    assert not [name for name, value in secrets.items() if value in told]
    found(f"{searched} files, tags and parameters: none")
