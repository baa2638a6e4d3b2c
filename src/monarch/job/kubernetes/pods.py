"""The state of a mesh's hosts, read from its pods.

It says which serve, at which address, and why the others do not. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...errors import JobError
from .api import Object
from .manifest import CONTROLLERS, Mesh, port_of, worker_container

_HOPELESS = {
    "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
}  # fmt: skip
"""Reasons for which a container waits that it does not get out of by itself."""

logger = logging.getLogger("monarch.job")


class Trouble(NamedTuple):
    """Why a pod does not serve.

    Attributes:
        pod: Its name.
        text: In the words of Kubernetes.
        is_hopeless: Whether it will not change by itself.
        is_unschedulable: Whether no node has room for it.
        container: The container that has trouble; empty if it is none.
    """

    pod: str
    text: str
    is_hopeless: bool = False
    is_unschedulable: bool = False
    container: str = ""


class Pods:
    """The pods of a mesh.

    Args:
        mesh: The mesh.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._pods: dict[str, Object] = {}
        self._reported: set[tuple[str, str]] = set()

    def replace(self, pods: Iterable[Object]) -> None:
        """Replace all known pods by these."""
        self._pods = {pod["metadata"]["name"]: pod for pod in pods}

    def take(self, event: str, pod: Object) -> None:
        """Something has happened to a pod."""
        if event == "DELETED":  # or has lost the labels
            self._pods.pop(pod["metadata"]["name"], None)
        else:
            self._pods[pod["metadata"]["name"]] = pod

    @property
    def all(self) -> Mapping[str, Object]:
        """The pods by name."""
        return self._pods

    def serving(self) -> dict[int, Object]:
        """Pods that serve, by rank.

        Raises:
            JobError: Two have the same rank.
        """
        found: dict[int, Object] = {}
        for name, pod in sorted(self._pods.items()):
            rank = None if is_ending(pod) else self.rank(pod)
            if rank is None or not is_ready(pod):
                continue
            if rank in found:
                raise JobError(
                    f"mesh {self.mesh.name!r}: pods {found[rank]['metadata']['name']!r} and"
                    f" {name!r} both have rank {rank} ({self.mesh.rank_label}): the selector"
                    f" {self.mesh.selector!r} matches pods of others, too"
                )
            found[rank] = pod
        return found

    def addresses(self) -> list[str] | None:
        """The addresses of the hosts, in order of their ranks; None if some do not serve yet."""
        serving = self.serving()
        if len(serving) < self.mesh.size:
            return None
        return [self.address(serving[rank]) for rank in range(self.mesh.size)]

    def missing(self) -> list[int]:
        """Ranks that no pod serves."""
        serving = self.serving()
        return [rank for rank in range(self.mesh.size) if rank not in serving]

    def troubles(self) -> list[Trouble]:
        """List the reasons that keep pods from serving, the worst first."""
        known = [
            self._end_of(pod) or _trouble(pod)
            for pod in self._pods.values()
            if not is_ending(pod) and not is_ready(pod)
        ]
        found = [trouble for trouble in known if trouble is not None]
        return sorted(found, key=lambda it: (not it.is_hopeless, not it.is_unschedulable, it.pod))

    def ends(self) -> list[Trouble]:
        """List how containers of it have ended, also of pods that serve again."""
        return [trouble for pod in self._pods.values() if (trouble := _trouble(pod)) is not None]

    def completed(self) -> dict[int, Trouble]:
        """Ranks with completed pods that nothing replaces."""
        ends = [(self.rank(pod), self._end_of(pod)) for pod in self._pods.values()]
        return {rank: end for rank, end in ends if rank is not None and end is not None}

    def rank(self, pod: Object) -> int | None:
        """Which host of the mesh a pod is; None if it is none, which is logged once."""
        name, mesh = pod["metadata"]["name"], self.mesh
        label = pod["metadata"].get("labels", {}).get(mesh.rank_label)
        if label is not None and label.isdecimal() and int(label) < mesh.size:
            return int(label)
        why = (
            f"has no label {mesh.rank_label}" if label is None else f"has {mesh.rank_label}={label}"
        )
        if (name, why) not in self._reported:
            self._reported.add((name, why))
            text = "pod %s is no host of mesh %r, which has ranks 0 to %d: it %s"
            logger.warning(text, name, mesh.name, mesh.size - 1, why)
        return None

    def address(self, pod: Object) -> str:
        """The address of the worker in a pod."""
        ip = pod["status"]["podIP"]
        return f"tcp://{f'[{ip}]' if ':' in ip else ip}:{port_of(worker_container(pod['spec']), self.mesh.port)}"

    def _end_of(self, pod: Object) -> Trouble | None:
        """The trouble of a host with a completed pod that is not replaced.

        A Job does not make a second pod for the same index.
        """
        is_of_job = CONTROLLERS["Job"].rank_label in pod["metadata"].get("labels", {})
        if (
            not is_of_job
            or pod.get("status", {}).get("phase") != "Succeeded"
            or self.rank(pod) is None
        ):
            return None
        text = (
            "its worker has ended in order, shut down or after idle_limit, and a Job starts it only"
            " once"
        )
        container = worker_container(pod["spec"]).get("name", "")
        return Trouble(pod["metadata"]["name"], text, True, container=container)


def is_ready(pod: Object) -> bool:
    """Return whether the pod's probe succeeds. That stays so for a moment while the pod ends."""
    return _condition(pod, "Ready").get("status") == "True" and bool(pod["status"].get("podIP"))


def is_ending(pod: Object) -> bool:
    """Return whether the pod was deleted, and is ending."""
    return "deletionTimestamp" in pod["metadata"]


def _condition(pod: Object, kind: str) -> Object:
    conditions: list[Object] = pod.get("status", {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == kind), {})


def _trouble(pod: Object) -> Trouble | None:
    name, status = pod["metadata"]["name"], pod.get("status", {})
    statuses = [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]
    if status.get("phase") == "Failed" and status.get("reason"):  # by the node: Evicted
        return Trouble(name, f"{status['reason']}{_after(status.get('message'))}")
    for container in statuses:
        waiting = container.get("state", {}).get("waiting", {})
        reason = waiting.get("reason", "")
        if reason and reason not in ("ContainerCreating", "PodInitializing"):
            text = f"{reason}{_after(waiting.get('message'))}"
            return Trouble(name, text, reason in _HOPELESS, container=container["name"])
        states = container.get("state", {}), container.get("lastState", {})
        ended: Object = next((each["terminated"] for each in states if "terminated" in each), {})
        if ended.get("exitCode"):
            text = (
                f"its container {container['name']!r} has ended with exit status"
                f" {ended['exitCode']}"
            )
            text += _after(ended.get("reason")) + _after(ended.get("message"))
            return Trouble(name, text, container=container["name"])
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        reason = scheduled.get("reason", "")
        text = f"{reason}{_after(scheduled.get('message'))}"
        return Trouble(name, text, is_unschedulable=reason == "Unschedulable")
    if status.get("phase") == "Failed":
        return Trouble(name, f"Failed{_after(status.get('reason'))}{_after(status.get('message'))}")
    return None


def _after(text: str | None) -> str:
    return f": {text}" if text else ""
