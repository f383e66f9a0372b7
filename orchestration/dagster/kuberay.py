"""RayJobs of the KubeRay operator: created, waited for and deleted through the Kubernetes API.

The client is dagster-ray's, which takes its credentials from the kubeconfig or from the pod it runs in. It waits by
asking for the status again and again, and some of its loops look at one field alone: a job whose
`activeDeadlineSeconds` has passed keeps the `jobStatus` RUNNING for ever. So every look here ends the wait where the
operator has ended the job, or should have ended it long ago.
"""

import time
from typing import Any

from dagster_ray.kuberay.client import RayJobClient
from dagster_ray.kuberay.client.rayjob.client import RayJobStatus
from dagster_ray.kuberay.utils import is_retryable_k8s_api_exception
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from schemas.errors import BuildError

OUTAGE_S = 120.0  # of the API server, that a wait survives
OVERDUE_S = 300.0  # after the job's own deadline: the operator is not there to end it
_GONE = 404


class RayJobs(RayJobClient):
    """The RayJobs of a cluster: `create(body, namespace)`, `get_status(name, namespace)`, `delete(name, namespace)`.

    Attributes:
        deadline_s: seconds that a job may be waited for in all, from the first look at it.
    """

    def __init__(self, *, deadline_s: float, api_client: Any = None) -> None:
        super().__init__(api_client=api_client)
        self.deadline_s = deadline_s
        self._first_look: dict[str, float] = {}

    def get_status(self, name: str, namespace: str, timeout: float = 60, poll_interval: float = 1.0) -> RayJobStatus:
        """Return the status of a job that may still succeed, or has.

        Raises:
            BuildError: it failed, was refused or deleted, or is long past its deadline; or no operator took it up, or
                the API server does not answer.
        """
        until = self._first_look.setdefault(name, time.monotonic()) + self.deadline_s + OVERDUE_S
        status = self._status(name, namespace, timeout, poll_interval)
        if status.get("jobDeploymentStatus") in ("Failed", "ValidationFailed"):
            raise BuildError(f"RayJob {name}: {status.get('reason', 'failed')}: {status.get('message', 'no message')}")
        if status.get("jobStatus") in ("FAILED", "STOPPED"):
            raise BuildError(f"RayJob {name}: {status['jobStatus']}: {status.get('message', 'no message')}")
        if time.monotonic() > until:
            raise BuildError(f"RayJob {name}: still {status.get('jobDeploymentStatus')} long after its deadline")
        return status

    def terminate(self, name: str, namespace: str, *_: Any, **__: Any) -> bool:
        """Delete a job with its cluster; dagster-ray's way would wait for ever for one that never started."""
        self.delete(name, namespace)
        return True

    def delete(self, name: str, namespace: str) -> Any:
        """Delete a job with its cluster; one that is gone is no error."""
        try:
            return super().delete(name, namespace)
        except ApiException as problem:
            if problem.status != _GONE:
                raise
            return None

    def _status(self, name: str, namespace: str, timeout: float, poll_interval: float) -> RayJobStatus:
        """Ask for a status, again while the API server is away for a moment."""
        since = time.monotonic()
        while True:
            try:
                return super().get_status(name, namespace, timeout=timeout, poll_interval=poll_interval)
            except TimeoutError as problem:
                why = f"no status after {timeout:.0f} s; is a KubeRay operator there?"
                raise BuildError(f"RayJob {name}: {why}") from problem
            except (ApiException, HTTPError, OSError) as problem:
                if isinstance(problem, ApiException) and problem.status == _GONE:
                    raise BuildError(f"RayJob {name}: it was deleted") from problem
                if not is_retryable_k8s_api_exception(problem) or time.monotonic() - since > OUTAGE_S:
                    raise BuildError(f"RayJob {name}: {' '.join(str(problem).split())}") from problem
                time.sleep(poll_interval)
