"""The objects that a job creates in Kubernetes. Pure: nothing is sent here.

A mesh of hosts is one object, of which a controller makes pods with ranks, in one of three ways
(`CONTROLLERS`). All have the same template of a pod: one worker, with the secret of the job in its
environment and a probe that says when it listens.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..._new_python import MAIN
from ..base.contract import IDLE_LIMIT
from ..base.state import check_mesh_names
from ..base.worker_spec import WorkerSpec
from ..service_identity import SERVICE_PROC_RANK_ENV
from .api import Object, Resource

PORT = 26600
"""Where workers listen by default."""

PORT_ENV = "MONARCH_PORT"
"""Environment variable of the container of a worker: where it listens, if not at `PORT`."""

ADDRESS_ENV = "MONARCH_POD_IP"
"""Environment variable of workers: the address of their pod."""

WORKER_LABEL = "app.kubernetes.io/name"
MESH_LABEL = "monarch.pytorch.org/mesh-name"
USER = "monarch.pytorch.org/user"
"""Annotation of an object: who has made it."""

SECRET_KEY = "secret"
INDEX_LABEL = "apps.kubernetes.io/pod-index"

_LONGEST_NAME = 63
_GRACE = 10  # seconds that a pod gets to end in order
_WORKER = MAIN.format("monarch.job.worker_main")


class Controller(NamedTuple):
    """The Kubernetes object that makes the pods of a mesh.

    Attributes:
        resource: Its objects.
        rank_label: Label of its pods: their rank.
    """

    resource: Resource
    rank_label: str


CONTROLLERS = {
    "MonarchMesh": Controller(
        Resource("monarch.pytorch.org", "v1alpha1", "monarchmeshes"), INDEX_LABEL
    ),
    "StatefulSet": Controller(Resource("apps", "v1", "statefulsets"), INDEX_LABEL),
    "Job": Controller(Resource("batch", "v1", "jobs"), "batch.kubernetes.io/job-completion-index"),
}
"""By name: the custom resource of Monarch's operator, and two kinds that every cluster has."""


@dataclass(frozen=True)
class ImageSpec:
    """The image of the pods of a mesh, with a Python that has this release of pymonarch.

    Attributes:
        image: Its name.
        resources: What each pod needs, and gets at most:
            ``{"cpu": 4, "memory": "16Gi", "nvidia.com/gpu": 8}``.
        enable_fuse: Whether workers may mount file systems; the container is privileged then.
        shared_memory_size: Size of ``/dev/shm``, such as ``"8Gi"``; by default what the cluster
            gives, often 64 MB.
    """

    image: str
    resources: Mapping[str, str | int] | None = None
    enable_fuse: bool = False
    shared_memory_size: str | None = None


@dataclass
class Mesh:
    """The pods that are the hosts of a mesh.

    Attributes:
        name: Of the mesh, and of its object.
        size: Number of pods.
        selector: Label selector of the pods.
        rank_label: Label with the rank of a pod.
        port: Where workers listen, unless their container has `PORT_ENV`.
        template: Template of the pods, to make them; None if others make them.
        labels: Of the object.
        annotations: Of the object.
    """

    name: str
    size: int
    selector: str
    rank_label: str
    port: int = PORT
    template: Object | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None

    @property
    def is_made(self) -> bool:
        """True if the job makes the pods; False if it only attaches them."""
        return self.template is not None


def check_name(name: str) -> None:
    """Refuse what can't be the name of both an object of Kubernetes and a mesh.

    Raises:
        TypeError: It is no string.
        ValueError: It is empty, too long, or has other characters than lower-case letters and
            digits, with a letter first.
    """
    check_mesh_names([name])
    if len(name) > _LONGEST_NAME:
        raise ValueError(
            f"mesh {name!r}: a name has at most {_LONGEST_NAME} characters, got {len(name)}"
        )
    if not re.fullmatch("[a-z][a-z0-9]*", name):
        raise ValueError(
            f"mesh {name!r}: Kubernetes and Python both use the name, so it has lower-case letters"
            " and digits only, and begins with a letter"
        )


def default_selector(mesh: str) -> str:
    """The labels by which the pods of a mesh are known."""
    return ",".join(f"{key}={value}" for key, value in _pod_labels(mesh).items())


def template_of(mesh: str, image: ImageSpec, port: int) -> Object:
    """Return the template of pods with an image."""
    container: Object = {"name": "worker", "image": image.image}
    spec: Object = {
        "containers": [container],
        "enableServiceLinks": False,  # a Service called "monarch" would set MONARCH_PORT
        "terminationGracePeriodSeconds": _GRACE,
    }
    if image.resources:
        amounts = {name: str(amount) for name, amount in image.resources.items()}
        container["resources"] = {"requests": amounts, "limits": dict(amounts)}
    mounts, volumes = [], []
    if image.enable_fuse:
        container["securityContext"] = {"privileged": True}
        mounts.append({"name": "fuse", "mountPath": "/dev/fuse"})
        volumes.append({"name": "fuse", "hostPath": {"path": "/dev/fuse", "type": "CharDevice"}})
    if image.shared_memory_size:
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
        volumes.append(
            {
                "name": "shared-memory",
                "emptyDir": {"medium": "Memory", "sizeLimit": image.shared_memory_size},
            }
        )
    if mounts:
        container["volumeMounts"], spec["volumes"] = mounts, volumes
    return with_worker({"spec": spec}, mesh, port)


def with_worker(template: Object, mesh: str, port: int) -> Object:
    """Complete a template of pods.

    Its container `worker`, or the first one, gets what a worker needs, where it has nothing
    else for that.

    Raises:
        ValueError: It has no container.
    """
    template = copy.deepcopy(template)
    containers = template.get("spec", {}).get("containers")
    if not containers:
        raise ValueError(
            f"mesh {mesh!r}: the template of its pods has no container: {json.dumps(template)}"
        )
    template.setdefault("metadata", {}).setdefault("labels", {}).update(_pod_labels(mesh))
    worker = worker_container(template["spec"])
    port = port_of(worker, port)
    if "command" not in worker and "args" not in worker:
        spec = WorkerSpec(
            mesh, f"${SERVICE_PROC_RANK_ENV}", f"tcp://${ADDRESS_ENV}:{port}", bind="*"
        )
        worker["command"] = ["python", "-u", "-c", _WORKER, json.dumps(spec._asdict())]
    if port not in [each.get("containerPort") for each in worker.setdefault("ports", [])]:
        worker["ports"].append({"containerPort": port, "name": "monarch"})
    worker.setdefault("readinessProbe", {"tcpSocket": {"port": port}, "periodSeconds": 2})
    return template


def worker_container(pod_spec: Object) -> Object:
    """The container of a pod that runs the worker."""
    containers: list[Object] = pod_spec["containers"]
    return next(
        (container for container in containers if container.get("name") == "worker"), containers[0]
    )


def port_of(container: Object, default: int) -> int:
    """The port at which the worker in a container listens."""
    values = [
        each.get("value", "") for each in container.get("env", []) if each.get("name") == PORT_ENV
    ]
    return int(values[0]) if values and str(values[0]).isdecimal() else default


def secret_object(name: str, secret: str, user: str) -> Object:
    """The Secret with the secret of a job."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "annotations": {USER: user}},
        "type": "Opaque",
        "stringData": {SECRET_KEY: secret},
    }


def mesh_object(kind: str, mesh: Mesh, secret: str, idle_limit: float, user: str) -> Object:
    """The object of a mesh.

    Args:
        kind: One of `CONTROLLERS`.
        mesh: The mesh.
        secret: Name of the Secret.
        idle_limit: Seconds without a client after which a worker ends.
        user: Who makes it.
    """
    controller = CONTROLLERS[kind]
    template = copy.deepcopy(mesh.template) or {}
    worker = worker_container(template["spec"])
    env = worker.setdefault("env", [])
    known = {each["name"] for each in env}
    env += [
        each
        for each in _environment(mesh, controller, secret, idle_limit)
        if each["name"] not in known
    ]
    if kind == "MonarchMesh":
        port = port_of(worker, mesh.port)
        spec: Object = {"replicas": mesh.size, "port": port, "podTemplate": template}
    elif kind == "StatefulSet":
        spec = {
            "replicas": mesh.size,
            "serviceName": mesh.name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": _pod_labels(mesh.name)},
            "template": template,
        }
    else:
        # Not `Never`, which would make a new pod for each worker that is killed. The limit is for
        # what never comes up.
        template["spec"].setdefault("restartPolicy", "OnFailure")
        spec = {
            **scaled(kind, mesh.size)["spec"],
            "completionMode": "Indexed",
            "backoffLimit": 1000,
            "ttlSecondsAfterFinished": 60,
            "template": template,
        }
    annotations = {**(mesh.annotations or {}), USER: user}
    metadata: Object = {
        "name": mesh.name,
        "annotations": annotations,
        "labels": {MESH_LABEL: mesh.name, **(mesh.labels or {})},
    }
    return {
        "apiVersion": controller.resource.api_version,
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def scaled(kind: str, size: int) -> Object:
    """Return the patch that gives an object another number of pods."""
    return {
        "spec": {"completions": size, "parallelism": size} if kind == "Job" else {"replicas": size}
    }


def differences(old: Any, new: Any) -> Any:
    """Return the patch that turns `old` into `new`; fields that are not in `new` are removed."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {
        **dict.fromkeys(old.keys() - new.keys()),
        **{key: differences(old.get(key), new[key]) for key in new},
    }


def _environment(
    mesh: Mesh, controller: Controller, secret: str, idle_limit: float
) -> list[Object]:
    def field(path: str) -> Object:
        return {"fieldRef": {"fieldPath": path}}

    return [
        {"name": PORT_ENV, "value": str(mesh.port)},
        {"name": ADDRESS_ENV, "valueFrom": field("status.podIP")},
        {
            "name": SERVICE_PROC_RANK_ENV,
            "valueFrom": field(f"metadata.labels['{controller.rank_label}']"),
        },
        {
            "name": "MONARCH_SECRET",
            "valueFrom": {"secretKeyRef": {"name": secret, "key": SECRET_KEY}},
        },
        {"name": IDLE_LIMIT, "value": f"{idle_limit:f}s"},
    ]


def _pod_labels(mesh: str) -> dict[str, str]:
    return {WORKER_LABEL: "monarch-worker", MESH_LABEL: mesh}
