"""The RayJob (ray.io/v1) of a step: a Ray cluster of a head and its workers that ends with the job.

Kubernetes' part alone, as plain data; `infra/kuberay/rayjob.yaml` shows it, and a test holds the two equal. Creating,
reading and deleting it is `dagster/kuberay.py`'s. It needs KubeRay 1.6, which is the first to know
`preRunningDeadlineSeconds` and a token secret of one's own.

Two secrets are referred to by name:

    multilink       environment of every pod: keys of the lake, address of MLflow; it may be absent
    multilink-ray   `auth_token`: what the cluster and whoever reads its log (RAY_AUTH_TOKEN) authenticate with
"""

import shlex
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from orchestration.config import RaySettings

ENVIRONMENT_SECRET, TOKEN_SECRET = "multilink", "multilink-ray"
KEPT_S = 3600  # an ended cluster, so that its log can be read


def rayjob(step: Sequence[str], *, name: str, ray: RaySettings) -> dict[str, Any]:
    """Return the RayJob that runs `multilink` with the arguments of a step.

    Who asked for the step tries it again, from its checkpoint; KubeRay does not (`backoffLimit: 0`). The two deadlines
    count from the moment at which the operator takes the job up.
    """
    limits = {"cpu": ray.worker_cpu, "memory": ray.worker_memory} | (
        {"nvidia.com/gpu": str(ray.gpus)} if ray.gpus else {}
    )
    workers = {
        "groupName": "workers",
        "replicas": ray.workers,
        "minReplicas": ray.workers,
        "maxReplicas": ray.workers,
        "rayStartParams": {},
        "template": _pod("ray-worker", ray, limits),
    }
    head = {
        "rayStartParams": {"num-cpus": "0"},
        "template": _pod("ray-head", ray, {"cpu": "2", "memory": "8Gi"}),
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name, "namespace": ray.namespace, "labels": {"app.kubernetes.io/name": "multilink"}},
        "spec": {
            "entrypoint": shlex.join(["multilink", *step]),
            "backoffLimit": 0,
            "preRunningDeadlineSeconds": ray.start_deadline_s,
            "activeDeadlineSeconds": ray.deadline_s,
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": KEPT_S,
            "submitterPodTemplate": _pod("submitter", ray, {"cpu": "500m", "memory": "1Gi"}, restartPolicy="Never"),
            "rayClusterSpec": {
                "rayVersion": version("ray"),
                "authOptions": {"mode": "token", "secretName": TOKEN_SECRET},
                "headGroupSpec": head,
                "workerGroupSpecs": [workers],
            },
        },
    }


def _pod(name: str, ray: RaySettings, limits: dict[str, str], **more: str) -> dict[str, Any]:
    """Return a pod that the Pod Security Standard `restricted` admits; the user is that of `infra/Dockerfile`."""
    container = {
        "name": name,
        "image": ray.image,
        "envFrom": [{"secretRef": {"name": ENVIRONMENT_SECRET, "optional": True}}],
        "resources": {"requests": limits, "limits": limits},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    user = {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    placed: dict[str, Any] = {
        "imagePullSecrets": [{"name": each} for each in ray.pull_secrets],
        "serviceAccountName": ray.service_account,
        "nodeSelector": dict(ray.node_selector),
        "tolerations": [dict(each) for each in ray.tolerations],
    }
    spec = {"securityContext": user, "automountServiceAccountToken": False, "containers": [container], **more}
    return {"spec": spec | {name: value for name, value in placed.items() if value}}
