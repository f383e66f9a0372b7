"""A cluster under test: commands on it, what ends in it, what was asked of its web."""

import json
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import torch
from cluster.local.cluster import Cluster
from cluster.local.deployment import WEB, web_of

from schemas.lake import Lake
from schemas.manifest import Manifest
from training.mlflow.loading import load

ROOT = Path(__file__).resolve().parents[2]
LAKE = "s3://lake/main"
COMMAND_TIMEOUT_S = 1800.0


@dataclass(slots=True)
class Bench:
    """A cluster under test.

    Attributes:
        cluster: what ends in it is started again within a second.
    """

    cluster: Cluster

    def start(self, *arguments: str, on: str = "", **environment: str) -> subprocess.Popen[str]:
        """Start a `multilink` command on the cluster, on one of its machines or beside them."""
        command = [sys.executable, "-m", "orchestration", *arguments]
        command = [*self.cluster.plan.machines[on].enter, *command] if on else command
        own = os.environ | self.cluster.environment | environment | {"PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, cwd=ROOT, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *arguments: str, on: str = "", **environment: str) -> dict[str, Any]:
        """Run a `multilink` command on the cluster, and return its summary."""
        return summary_of(self.start(*arguments, on=on, **environment))

    def build_arguments(self, lake: str, where: Sequence[str] = ()) -> list[str]:
        """Return the command that builds `diy` from the cluster's recorded web: on its engine, or where it is said."""
        set_ = [part for setting in web_of(self.cluster.plan) for part in ("--set", setting)]
        engine = ("--runner", str(self.cluster.plan.engine))
        own = ["build", "diy", "--lake", lake, *set_, *(where or engine), "--json"]
        return own if where else [*own, "--", *self.cluster.beam_options]

    def train_arguments(self, lake: str, version: str, *settings: str) -> list[str]:
        """Return the command that trains on two nodes."""
        recipe = ["--recipe", "tiny", *TWO_BATCHES, "--workers", "2", "--no-report", "--json"]
        return ["train", "--dataset", f"diy@{version}", "--lake", lake, *recipe, *settings]

    @property
    def registry(self) -> mlflow.MlflowClient:
        """Return a client of the cluster's registry, whichever one this process named last."""
        uri = self.cluster.environment["MLFLOW_TRACKING_URI"]
        return mlflow.MlflowClient(uri, registry_uri=uri)

    def weights(self, model: str) -> Mapping[str, torch.Tensor]:
        """Return the weights of a model of the cluster's registry."""
        return weights_of(model, self.cluster.environment["MLFLOW_TRACKING_URI"])

    def kill(self, name: str, signal_number: int = 9) -> None:
        """Kill a service with all its processes."""
        os.killpg(self.cluster.supervisor_of(name).pid(name), signal_number)

    def is_up(self, name: str) -> bool:
        """Return whether a service runs: one that was killed is started again within seconds."""
        try:
            os.killpg(self.cluster.supervisor_of(name).pid(name), 0)
        except ProcessLookupError:
            return False
        return True

    def asked(self) -> Counter[tuple[str, str]]:
        """Return how often each (host, path) of the recorded web was asked for since the cluster started."""
        with urllib.request.urlopen(self.cluster.plan.url("web", WEB) + "/__requests", timeout=30) as answer:
            rows = json.load(answer)
        return Counter((host, path) for host, path, _ in rows)


def summary_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the summary of a command that is to succeed."""
    out, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert process.returncode == 0, err[-3000:]
    summary: dict[str, Any] = json.loads(out.splitlines()[-1])
    return summary


@dataclass(frozen=True, slots=True)
class Local:
    """The same data set built on this machine alone."""

    lake: Lake
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Trained:
    """A model that was trained: its address, and its weights by name."""

    uri: str
    weights: Mapping[str, torch.Tensor]


WEIGHTS_DIFFER = 1e-4
Found = Callable[[str], None]  # takes what a test found
TWO_BATCHES = ("--set", "training.batches_per_step=2")  # one for each worker
References = Callable[..., Trained]  # what one local process trains with some settings


def weights_of(model: str, store: str) -> Mapping[str, torch.Tensor]:
    """Return the weights of a model by its address in a registry."""
    mlflow.set_tracking_uri(store)
    mlflow.set_registry_uri(store)
    weights: Mapping[str, torch.Tensor] = load(model, mlflow.MlflowClient(store, registry_uri=store)).model.state_dict()
    return weights


def largest_difference(mine: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor]) -> float:
    """Return the largest absolute difference of a weight of two models of the same names."""
    assert mine.keys() == theirs.keys()
    return max(float((mine[name].double() - theirs[name].double()).abs().max()) for name in mine)
