"""`KubernetesJob`: workers in pods of a Kubernetes cluster.

The job makes one object for each mesh, from which a controller makes pods with ranks (see
`manifest`), and a Secret that lets clients and workers in. A list of pods, and a watch
from there on, say which serve and why the others do not (`pods`).

What ends the workers: `kill`; where a ``Job`` makes them, also `idle_limit` seconds without a
client. What ends the wait for them: all serve; one can't come up; no node has had room for
`schedule_timeout`; `timeout`; ten minutes without an answer of the API.
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ... import actor
from ..._ours import user_name
from ...errors import JobError
from ...trust import make_secret
from ..base.contract import HostId, WorkersJob, check_idle_limit, check_size, hosts_of
from ..base.trait import JobTrait
from ..base.waiting import Waiting
from . import manifest
from .api import PODS, SECRETS, Api, ApiError, Object, Resource
from .config import KubeConfig
from .forward import Forward
from .manifest import ImageSpec, Mesh
from .pods import Pods
from .wait import describe, wait_for_pods

_CONFLICT = 409
# seconds for which the end of pods is waited for: more than they get to end in order
_KILL_LIMIT = 45.0
_ASK = 0.1  # seconds between two looks for their end

logger = logging.getLogger("monarch.job")

# by job: what leads into the cluster is one for all objects that stand for it
_forwards: dict[str, Forward] = {}


class KubernetesJob(WorkersJob):
    """Hosts that are pods, with one worker each. `add_mesh` says which.

    `state` asks for the pods, waits until they serve, and shows what keeps them from it. The job
    outlives the program, and the next run of it finds the same pods. With ``cached_path=None`` it
    ends with the program.

    Args:
        namespace: Where the pods are.
        timeout: Seconds for which `state` waits for them; None is for ever.
        kubeconfig: How to reach the cluster; by default from one of its pods. With one, all traffic
            passes through one worker, to which ``kubectl port-forward`` leads.
        attach_to: Address at which this machine reaches one worker, if not by kubectl:
            ``"tcp://127.0.0.1:26600"``.
        controller: What makes the pods: ``"MonarchMesh"``, with Monarch's operator, or on any
            cluster ``"StatefulSet"`` or ``"Job"``.
        idle_limit: Seconds without a client after which a worker ends; 0 is no limit. A ``Job``
            gives its node back then; the others start it again.
        schedule_timeout: Seconds for which no node may have room for a pod, in which others end or
            an autoscaler adds some; None is for ever.
        secret: The shared secret of pods that are attached; by default the usual one.

    Raises:
        TypeError: `kubeconfig` is none.
        ValueError: There is no such controller, or a limit is none.
    """

    def __init__(
        self,
        namespace: str,
        timeout: float | None = None,
        kubeconfig: KubeConfig | None = None,
        attach_to: str | None = None,
        *,
        controller: str = "MonarchMesh",
        idle_limit: float = 3600.0,
        schedule_timeout: float | None = 300.0,
        secret: str | None = None,
    ) -> None:
        if controller not in manifest.CONTROLLERS:
            raise ValueError(
                f"controller is one of {', '.join(manifest.CONTROLLERS)}; got {controller!r}"
            )
        if kubeconfig is not None and not isinstance(kubeconfig, KubeConfig):
            raise TypeError(
                f"kubeconfig is a KubeConfig, such as KubeConfig.from_path(...); got {kubeconfig!r}"
            )
        self._namespace = namespace
        self._timeout = timeout
        self._kubeconfig = kubeconfig or KubeConfig()
        self._attach_to = attach_to
        self._kind = controller
        self._idle_limit = check_idle_limit(idle_limit)
        self._schedule_timeout = schedule_timeout
        self._own_secret = secret
        self._meshes = {}
        self._pods: dict[str, Mesh] = {}  # with the sizes that they are described with
        self._made: list[tuple[Resource, str]] = []

    def add_mesh(
        self,
        name: str,
        num_replicas: int,
        label_selector: str | None = None,
        pod_rank_label: str = manifest.INDEX_LABEL,
        image_spec: ImageSpec | None = None,
        port: int = manifest.PORT,
        pod_template: Any = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Add a mesh.

        With an image or a template the job makes its pods; otherwise it takes those that others
        have made.

        Args:
            name: Of the mesh, and of the object of which its pods are made.
            num_replicas: Number of pods.
            label_selector: Which pods to take; by default those of a ``MonarchMesh`` of this name.
            pod_rank_label: Their label with the rank, such as ``"volcano.sh/task-index"``.
            image_spec: What pods to make.
            port: Where workers listen.
            pod_template: What pods to make, as a ``V1PodTemplateSpec`` or a dictionary. Its
                container called ``worker``, or else the first, gets what a worker needs, where it
                has nothing else: command, variables, port and readiness probe.
            labels: Of the object; ``{"kueue.x-k8s.io/queue-name": "research"}`` queues it in Kueue.
            annotations: Of the object.

        Raises:
            TypeError: The number is none.
            ValueError: The name is not usable or taken, the number is below 1, arguments exclude
                each other, or the job runs.
        """
        manifest.check_name(name)
        self._check_new(name)
        check_size(name, num_replicas)
        if image_spec is not None and pod_template is not None:
            raise ValueError(f"mesh {name!r}: give either an image_spec or a pod_template")
        makes = image_spec is not None or pod_template is not None
        if makes and (label_selector is not None or pod_rank_label != manifest.INDEX_LABEL):
            raise ValueError(
                f"mesh {name!r}: label_selector and pod_rank_label are for pods that this job does"
                " not make"
            )
        if not makes and (labels is not None or annotations is not None):
            raise ValueError(
                f"mesh {name!r}: labels and annotations are for pods that the job makes, which"
                " needs an image_spec"
            )
        mesh = Mesh(
            name,
            num_replicas,
            label_selector or manifest.default_selector(name),
            pod_rank_label,
            port,
        )
        if makes:
            if image_spec is not None:
                mesh.template = manifest.template_of(name, image_spec, port)
            else:
                mesh.template = manifest.with_worker(_plain(pod_template), name, port)
            mesh.rank_label = manifest.CONTROLLERS[self._kind].rank_label
            mesh.labels, mesh.annotations = dict(labels or {}), dict(annotations or {})
        self._meshes[name] = num_replicas
        self._pods[name] = mesh

    # making and ending

    def _create(self, client_script: str | None) -> None:
        self._refuse_script(client_script, "programs run in a pod, or outside with a kubeconfig")
        if not self._meshes:
            raise ValueError(
                "a job needs at least one mesh of hosts, got none: add_mesh() adds them"
            )
        made = [mesh for mesh in self._all_meshes() if mesh.is_made]
        if not made:
            return
        if len(made) < len(self._meshes) and self._own_secret is None:
            raise JobError(
                "a job that makes some pods and attaches others needs to know their secret, as all"
                " talk to each other: KubernetesJob(..., secret=...)"
            )
        user, api = user_name(), self._api()
        secret = manifest.secret_object(self._secret_name, self._own_secret or make_secret(), user)
        self._make(api, SECRETS, secret, user)
        for mesh in made:
            content = manifest.mesh_object(
                self._kind, mesh, self._secret_name, self._idle_limit, user
            )
            self._make(api, self._controller, content, user)
        self._end_with_program()

    def _make(self, api: Api, resource: Resource, content: Object, user: str) -> None:
        name = content["metadata"]["name"]
        try:
            api.create(resource, content)
        except ApiError as error:
            if error.status == 404 and self._kind == "MonarchMesh":
                raise JobError(
                    f"{error}. This cluster has no MonarchMesh: it needs Monarch's operator, or"
                    " KubernetesJob(..., controller='Job')"
                ) from error
            if error.status != _CONFLICT:
                raise
            self._take_over(api, resource, content, user)
        self._made.append((resource, name))

    def _take_over(self, api: Api, resource: Resource, content: Object, user: str) -> None:
        """Take over an existing job, as of a program that has lost its file.

        Pods that are alike stay.
        """
        name = content["metadata"]["name"]
        old = api.get(resource, name)
        is_ending = old is None or "deletionTimestamp" in old["metadata"]
        owner = None if old is None else old["metadata"].get("annotations", {}).get(manifest.USER)
        which = f"{resource.plural} {name!r} in namespace {self._namespace!r}"
        if old is None or is_ending or owner != user:
            why = "it is just being deleted"
            if not is_ending:
                why = f"{owner or 'another program'} has made it"
            raise JobError(
                f"there is {which}, and {why}: choose another name, or see to its end: kubectl"
                f" delete {resource.plural} {name}"
            )
        if resource == SECRETS and self._own_secret is None:  # its pods have that
            return
        logger.warning("there is %s already; it is changed into what this job describes", which)
        if self._kind == "Job":
            content = manifest.scaled(
                self._kind, self._meshes[name]
            )  # the rest of a Job can't be changed
        elif "spec" in old:
            content = {**content, "spec": manifest.differences(old["spec"], content["spec"])}
        api.patch(resource, name, content)

    def _kill(self) -> None:
        self._outlive_program()
        forward = _forwards.pop(self._apply_id or "", None)
        if forward is not None:
            forward.close()
        if not self._made:
            return
        api = self._api()
        for resource, name in reversed(self._made):
            api.delete(resource, name)
        names = {name for resource, name in self._made if resource != SECRETS}
        self._made = []
        end = time.monotonic() + _KILL_LIMIT
        with Waiting(f"the end of {self!r}") as waiting:
            for mesh in [mesh for mesh in self._all_meshes() if mesh.name in names]:
                while left := api.list(PODS, labelSelector=mesh.selector)["items"]:
                    if time.monotonic() > end:
                        logger.warning(
                            "pods that are still ending: %s",
                            [pod["metadata"]["name"] for pod in left],
                        )
                        return
                    waiting.show(f"{len(left)} pods of {mesh.name} are ending")
                    time.sleep(_ASK)

    def _disconnect(self) -> None:
        """Leave; workers that others have started stay."""
        for state in self._connected:
            for mesh in [mesh for mesh in self._all_meshes() if not mesh.is_made]:
                try:
                    state._hosts[mesh.name].stop().get(timeout=10)
                except Exception as error:
                    logger.info("hosts of mesh %r were not let go in order: %s", mesh.name, error)
        super()._disconnect()

    # finding

    def can_run(self, spec: JobTrait) -> bool:
        """Check whether `spec` describes the same job, complete and with no hopeless pod.

        False outside of a pod, where a job that is for programs in pods is out of reach.
        """
        if self._kubeconfig.is_out_of_place:
            return False
        if not self._same_spec(spec) or not self._is_running():
            return False
        api = self._api()
        return not any(
            trouble.is_hopeless for pods in self._look(api) for trouble in pods.troubles()
        )

    def _description(self) -> object:
        pods = {name: replace(mesh, size=0) for name, mesh in self._pods.items()}  # sizes change
        return self._namespace, self._kind, self._idle_limit, pods

    def _is_running(self) -> bool:
        api = self._api()
        return self._runs(api, () if self._made else self._look(api))

    def _runs(self, api: Api, looked: Sequence[Pods]) -> bool:
        if self._made:
            return not any(_is_over(api.get(resource, name)) for resource, name in self._made)
        return any(pods.serving() for pods in looked)

    def _progress(self) -> tuple[bool, str]:
        api = self._api()
        looked = self._look(api)
        runs = self._runs(api, looked)
        return runs, self._missing(api, looked) if runs else ""

    def _missing(self, api: Api, looked: list[Pods]) -> str:
        missing = (pods for pods in looked if pods.addresses() is None)
        return "; ".join(describe(api, pods, self._controller) for pods in missing)

    def _why_ended(self) -> str:
        api = self._api()
        looked = self._look(api)
        ends = (f"{each.pod}: {each.text}" for pods in looked for each in pods.ends())
        # a container may have started again
        told = self._missing(api, looked) or "; ".join(ends)
        return told and f"Kubernetes: {told}"

    def _look(self, api: Api) -> list[Pods]:
        found = [Pods(mesh) for mesh in self._all_meshes()]
        for pods in found:
            pods.replace(api.list(PODS, labelSelector=pods.mesh.selector)["items"])
        return found

    def _rebind_connection_inputs(self, spec: JobTrait) -> None:
        if isinstance(spec, KubernetesJob):
            self._timeout, self._schedule_timeout = spec._timeout, spec._schedule_timeout
            self._kubeconfig, self._attach_to = spec._kubeconfig, spec._attach_to
            self._own_secret = spec._own_secret or self._own_secret

    def _refresh(self) -> bool:
        config = self._kubeconfig  # of this program, which may be one that is not saved
        is_there = super()._refresh()
        self._kubeconfig = config
        return is_there

    # waiting and attaching

    def _addresses(self) -> Mapping[str, Sequence[str]]:
        return {pods.mesh.name: pods.addresses() or [] for pods in self._wait_for_pods()}

    def _secret(self) -> str | None:
        if not any(mesh.is_made for mesh in self._pods.values()):
            return self._own_secret
        found = self._api().get(SECRETS, self._secret_name)
        if found is None:
            raise JobError(
                f"the Secret {self._secret_name!r} of {self!r} is gone: kill() it, and state()"
                " starts it anew"
            )
        return base64.b64decode(found["data"][manifest.SECRET_KEY]).decode()

    def _wait_for_pods(self) -> list[Pods]:
        limits = self._timeout, self._schedule_timeout
        return wait_for_pods(self._api(), self._all_meshes(), repr(self), *limits, self._controller)

    # more hosts, and fewer

    def _add_hosts(self, hosts: Sequence[HostId]) -> None:
        api = self._api()
        found_pods = self._look(api)
        for pods in found_pods:
            for rank, trouble in pods.completed().items():
                if (pods.mesh.name, rank) in hosts:
                    raise JobError(
                        f"host {rank} of mesh {pods.mesh.name!r} can't be replaced: pod"
                        f" {trouble.pod} has completed: {trouble.text}. kill() the job, and state()"
                        " starts it anew"
                    )
        for pods in found_pods:
            name, size = pods.mesh.name, self._meshes[pods.mesh.name]
            lost = {rank for mesh, rank in hosts if mesh == name and rank < size}
            for pod, found in pods.all.items():
                # by force: on a node that is gone, nothing would say that it has ended
                if pods.rank(found) in lost:
                    api.delete(PODS, pod, gracePeriodSeconds="0")
            if further := [rank for mesh, rank in hosts if mesh == name and rank >= size]:
                api.patch(self._controller, name, manifest.scaled(self._kind, max(further) + 1))

    def _remove_hosts(self, hosts: Sequence[HostId]) -> None:
        for name in {mesh for mesh, _ in hosts}:
            self._api().patch(
                self._controller, name, manifest.scaled(self._kind, self._meshes[name])
            )

    def _check_scalable(self, hosts: Sequence[HostId]) -> None:
        if others := sorted({mesh for mesh, _ in hosts if not self._pods[mesh].is_made}):
            raise JobError(
                f"the pods of {', '.join(others)} can't be scaled by {self!r}: it has not made them"
            )

    def _reported(self) -> Mapping[HostId, str]:
        return {
            (pods.mesh.name, rank): pods.address(pod)
            for pods in self._look(self._api())
            for rank, pod in pods.serving().items()
        }

    def _lost_hosts(self, reported: Mapping[HostId, str]) -> list[HostId]:
        """The hosts that do not serve now. Nothing is dialed: from outside, pods can't be."""
        return [host for host in hosts_of(self._meshes) if host not in reported]

    # the way there

    def _prepare_client_gateway(self) -> None:
        if self._kubeconfig.is_in_cluster and self._attach_to is None:
            return
        secret = self._secret()
        actor.attach(self._attach_to or self._forwarded(), secret=secret)

    def _forwarded(self) -> str:
        assert self._apply_id is not None
        if self._apply_id not in _forwards:
            first = self._wait_for_pods()[0]
            pod = first.serving()[0]
            port = manifest.port_of(manifest.worker_container(pod["spec"]), first.mesh.port)
            _forwards[self._apply_id] = Forward(
                self._kubeconfig, self._namespace, pod["metadata"]["name"], port
            )
        return _forwards[self._apply_id].address

    # parts

    def _all_meshes(self) -> list[Mesh]:
        """As they are to be now."""
        return [replace(mesh, size=self._meshes[mesh.name]) for mesh in self._pods.values()]

    def _api(self) -> Api:
        return Api(self._kubeconfig.server(), self._namespace)

    @property
    def _controller(self) -> Resource:
        return manifest.CONTROLLERS[self._kind].resource

    @property
    def _secret_name(self) -> str:
        return f"{next(mesh.name for mesh in self._pods.values() if mesh.is_made)}-monarch"

    def _cleanup_log_context(self) -> str:
        return (
            f"(namespace {self._namespace}:"
            f" {[f'{resource.plural}/{name}' for resource, name in self._made]})"
        )

    def __repr__(self) -> str:
        return f"KubernetesJob({self._namespace!r}, {self._meshes!r})"


def _is_over(thing: Object | None) -> bool:
    """Return whether an object is gone, or is a Job that makes no more pods."""
    conditions = [] if thing is None else thing.get("status", {}).get("conditions") or []
    return thing is None or any(
        each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions
    )


def _plain(template: Any) -> Object:
    """A template as JSON has it."""
    if isinstance(template, dict):
        return template
    try:
        from kubernetes import client
    except ModuleNotFoundError:
        raise TypeError(
            f"a pod_template is a dictionary or a V1PodTemplateSpec, got {template!r}"
        ) from None
    plain: Object = client.ApiClient().sanitize_for_serialization(template)
    return plain
