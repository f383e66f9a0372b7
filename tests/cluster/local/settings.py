"""What Dagster finds in the cluster's home: its own settings, and what it builds, trains and promotes there."""

from typing import Any

import yaml

from orchestration.demo.recorded_web import dumps_of, recording_at, web_settings
from training.promotions.keys import make_key

from . import deployment
from .engines import beam_options
from .plan import Plan

TRAIN_WORKERS = 2
SPLITS = "splits.val=0.25"  # of thirteen documents, a tenth, no model can be shown to be better than another
_DAGSTER: dict[str, Any] = {
    "telemetry": {"enabled": False},
    "nux": {"enabled": False},
    "storage": {"postgres": {"postgres_url": {"env": "DAGSTER_POSTGRES_URL"}}},
    "concurrency": {"pools": {"default_limit": 1, "granularity": "run"}, "runs": {"max_concurrent_runs": 2}},
    "run_monitoring": {"enabled": True, "poll_interval_seconds": 10, "free_slots_after_run_end_seconds": 5},
    "run_retries": {"enabled": True, "max_retries": 2, "retry_on_asset_or_op_failure": False},
}


def web_of(plan: Plan) -> list[str]:
    """Return the settings of a `diy` build that scrapes the cluster's recorded web."""
    return [*web_settings(dumps_of(recording_at()), deployment.WEB, plan.machines["web"].address), SPLITS]


def write_settings(plan: Plan) -> None:
    """Write Dagster's home, the settings of the orchestration, and a key for promotions where there is none."""
    if not (plan.home / deployment.KEY).exists():
        make_key(plan.home / deployment.KEY)
    home = plan.home / "dagster"
    home.mkdir(exist_ok=True)
    code = {"host": plan.machines["dagster"].address, "port": deployment.CODE, "location_name": "multilink"}
    _write(home / "dagster.yaml", _DAGSTER)
    _write(home / "workspace.yaml", {"load_from": [{"grpc_server": code}]})
    own = {"name": "diy", "settings": web_of(plan), "train_recipe": "tiny"}
    settings = {
        "lake": deployment.clients(plan)["MULTILINK_LAKE"],
        "tracking_uri": plan.url("tracking", deployment.MLFLOW),
        "datasets": [own],
        "beam": {"runner": str(plan.engine), "options": beam_options(plan)},
        "ray": {"workers": TRAIN_WORKERS},  # Dagster drives them: RAY_ADDRESS leads to the cluster
    }
    _write(plan.home / "settings.yaml", settings)


def _write(file: Any, value: dict[str, Any]) -> None:
    file.write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")
