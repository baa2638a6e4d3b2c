"""What Kubernetes is asked for, and what is read from its answers, as objects."""

from __future__ import annotations

import json
import logging
import pickle
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from monarch.errors import JobError
from monarch.job.kubernetes import ImageSpec, KubeConfig, KubernetesJob
from monarch.job.kubernetes.api import PODS, Api, ApiError, Resource, Server
from monarch.job.kubernetes.manifest import (
    CONTROLLERS,
    Mesh,
    default_selector,
    differences,
    mesh_object,
    template_of,
    with_worker,
)
from monarch.job.kubernetes.pods import Pods

TEMPLATE = {"spec": {"containers": [{"name": "w", "image": "i"}]}}


def job(**more: Any) -> KubernetesJob:
    return KubernetesJob("tests", **more)


@pytest.mark.parametrize(
    "name", ["", "a" * 64, "my-mesh", "Trainers", "1st", "under_score", "admin_url"]
)
def test_a_name_that_kubernetes_or_python_can_not_use_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="mesh"):
        job().add_mesh(name, 1)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"num_replicas": 0}, "at least 1"),
        (
            {"image_spec": ImageSpec("i"), "pod_template": TEMPLATE},
            "either an image_spec or a pod_template",
        ),
        ({"image_spec": ImageSpec("i"), "label_selector": "a=b"}, "this job does not make"),
        ({"pod_template": TEMPLATE, "pod_rank_label": "rank"}, "this job does not make"),
        ({"labels": {"a": "b"}}, "needs an image_spec"),
        ({"pod_template": {"spec": {"containers": []}}}, "has no container"),
    ],
)
def test_arguments_of_a_mesh_that_exclude_each_other_are_refused(
    arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        job().add_mesh("trainers", **{"num_replicas": 1, **arguments})


def test_a_job_without_meshes_or_with_a_script_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one mesh"):
        job().apply()
    with pytest.raises(JobError, match="runs no scripts"):
        job().apply(client_script="train.py")
    with pytest.raises(ValueError, match="MonarchMesh, StatefulSet, Job; got 'Pod'"):
        job(controller="Pod")


def test_an_image_becomes_a_pod_with_what_it_was_asked_for() -> None:
    image = ImageSpec(
        "i:1", {"nvidia.com/gpu": 8, "cpu": "4"}, enable_fuse=True, shared_memory_size="1Gi"
    )
    spec = template_of("trainers", image, 27000)["spec"]
    (worker,) = spec["containers"]
    assert worker["image"] == "i:1"
    assert (
        worker["resources"]["requests"]
        == worker["resources"]["limits"]
        == {
            "nvidia.com/gpu": "8",
            "cpu": "4",
        }
    )
    assert worker["securityContext"] == {"privileged": True}
    assert [mount["mountPath"] for mount in worker["volumeMounts"]] == ["/dev/fuse", "/dev/shm"]
    assert spec["volumes"][1]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
    assert worker["readinessProbe"]["tcpSocket"] == {"port": 27000}
    assert not spec["enableServiceLinks"], (
        "the variables of a Service called monarch would be settings"
    )


def test_a_template_keeps_what_it_says_and_gets_what_it_lacks() -> None:
    own = {
        "name": "worker",
        "image": "i",
        "command": ["mine"],
        "env": [{"name": "MONARCH_PORT", "value": "27001"}],
    }
    given: dict[str, Any] = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {"containers": [{"name": "sidecar", "image": "s"}, own]},
    }
    template = with_worker(given, "trainers", 26600)
    assert given["spec"]["containers"] == [
        {"name": "sidecar", "image": "s"},
        own,
    ], "the user's object stays as it is"
    mesh = Mesh("trainers", 2, default_selector("trainers"), "rank", 26600, template)
    made = mesh_object("MonarchMesh", mesh, "s", 60, "me")
    sidecar, worker = made["spec"]["podTemplate"]["spec"]["containers"]
    assert sidecar == {"name": "sidecar", "image": "s"}
    assert worker["command"] == ["mine"]
    assert [each for each in worker["env"] if each["name"] == "MONARCH_PORT"] == [
        {"name": "MONARCH_PORT", "value": "27001"}
    ]
    assert {"MONARCH_SECRET", "MONARCH_WORKER_IDLE_LIMIT"} < {
        each["name"] for each in worker["env"]
    }
    assert (worker["readinessProbe"]["tcpSocket"]["port"], made["spec"]["port"]) == (27001, 27001)
    assert made["spec"]["podTemplate"]["metadata"]["labels"]["team"] == "a"


def test_a_change_removes_what_is_not_described_any_more() -> None:
    old = {
        "replicas": 1,
        "podTemplate": {"spec": {"nodeSelector": {"a": "b"}, "containers": [1, 2]}},
    }
    new = {"replicas": 2, "podTemplate": {"spec": {"containers": [1]}}}
    assert differences(old, new) == {
        "replicas": 2,
        "podTemplate": {"spec": {"nodeSelector": None, "containers": [1]}},
    }


def test_a_configuration_of_one_program_is_not_saved(caplog: pytest.LogCaptureFixture) -> None:
    class Configuration:
        host = "https://there"

        def auth_settings(self) -> dict[str, Any]:
            return {}

    config = KubeConfig.from_config(Configuration())
    with caplog.at_level(logging.WARNING, "monarch.job"):
        copy = pickle.loads(pickle.dumps(config))
    assert "is not saved" in caplog.text
    assert not copy.is_in_cluster
    with pytest.raises(JobError, match=r"from_path"):
        copy.server()
    assert pickle.loads(pickle.dumps(KubeConfig.from_path("/a/b"))).path == "/a/b"
    with pytest.raises(TypeError, match="Configuration"):
        KubeConfig.from_config("~/.kube/config")


# pods


def pod(
    name: str, rank: str | None, *, ready: bool = True, ends: bool = False, **status: Any
) -> dict[str, Any]:
    labels = {} if rank is None else {"rank": rank}
    metadata = {"name": name, "labels": labels, **({"deletionTimestamp": "now"} if ends else {})}
    conditions = [{"type": "Ready", "status": str(ready)}, *status.pop("conditions", [])]
    return {
        "metadata": metadata,
        "spec": {"containers": [{}]},
        "status": {"podIP": "10.0.0.7", "conditions": conditions, **status},
    }


def pods(*those: dict[str, Any], size: int = 2) -> Pods:
    found = Pods(Mesh("trainers", size, "a=b", "rank"))
    found.replace(those)
    return found


def test_pods_that_serve_are_hosts_in_the_order_of_their_ranks() -> None:
    second = pod("b", "1")
    second["status"]["podIP"] = "fd00::8"
    second["spec"]["containers"][0]["env"] = [{"name": "MONARCH_PORT", "value": "27000"}]
    assert pods(second, pod("a", "0")).addresses() == [
        "tcp://10.0.0.7:26600",
        "tcp://[fd00::8]:27000",
    ]


@pytest.mark.parametrize(
    "other", [pod("b", "1", ready=False), pod("b", "1", ends=True), pod("b", "2"), pod("b", "-1"), pod("b", "x"), pod("b", None)]
)  # fmt: skip
def test_pods_that_end_are_not_ready_or_have_no_rank_do_not_count(other: dict[str, Any]) -> None:
    found = pods(pod("a", "0"), other)
    assert (found.addresses(), found.missing()) == (None, [1])


def test_two_pods_of_one_rank_are_an_error_that_names_them() -> None:
    with pytest.raises(JobError, match=r"pods 'a' and 'b' both have rank 0 .*the selector 'a=b'"):
        pods(pod("a", "0"), pod("b", "0")).addresses()


def test_what_happens_to_pods_is_followed() -> None:
    found = pods(pod("a", "0"), pod("b", "1"))
    found.take("MODIFIED", pod("b", "1", ready=False))
    assert found.missing() == [1]
    found.take("ADDED", pod("c", "1"))
    assert found.missing() == []
    found.take("DELETED", pod("a", "0"))
    assert found.missing() == [0]


def waits(reason: str) -> dict[str, Any]:
    return {
        "containerStatuses": [
            {"name": "worker", "state": {"waiting": {"reason": reason, "message": "m"}}}
        ]
    }


def test_the_worst_trouble_comes_first_and_what_goes_by_itself_is_no_end() -> None:
    no_room = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3",
    }
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    found = pods(
        pod("a", "0", ready=False, **waits("ErrImagePull")),
        pod("b", "1", ready=False, conditions=[no_room]),
        pod("c", "2", ready=False, **waits("ContainerCreating")),
        pod("d", "3", ready=False, **waits("CreateContainerConfigError")),
        pod("e", "4", ready=False, conditions=[gated]),
        pod("f", "5", ready=False, ends=True, **waits("CrashLoopBackOff")),
        size=6,
    ).troubles()
    assert [(each.pod, each.is_hopeless, each.is_unschedulable) for each in found] == [
        ("d", True, False),
        ("b", False, True),
        ("a", False, False),
        ("e", False, False),
    ]
    assert found[0].text == "CreateContainerConfigError: m"


def test_a_completed_pod_of_a_job_is_the_end_of_its_host_and_others_come_again() -> None:
    index = "batch.kubernetes.io/job-completion-index"

    def completed(name: str, rank: str, **labels: str) -> dict[str, Any]:
        found = pod(name, rank, ready=False, phase="Succeeded")
        found["metadata"]["labels"] |= labels
        return found

    made_again = completed("a", "0")
    of_a_job, beyond = completed("b", "1", **{index: "1"}), completed("c", "2", **{index: "2"})
    (trouble,) = pods(made_again, of_a_job, beyond).troubles()
    assert (trouble.pod, trouble.is_hopeless) == ("b", True)
    assert "its worker has ended in order" in trouble.text


# the API


class Answers(Api):
    """Gives what it is told to."""

    def __init__(self, objects: dict[str, Any]) -> None:
        self.objects = objects
        self.changed: list[str] = []

    def get(self, resource: Resource, name: str) -> Any:
        return self.objects.get(resource.plural)

    def create(self, resource: Resource, content: Any) -> Any:
        raise ApiError("there is one", 409)

    def patch(self, resource: Resource, name: str, content: Any) -> Any:
        self.changed.append(name)

    delete = patch  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("conditions", "runs"),
    [
        ([], True),
        ([{"type": "Suspended", "status": "True"}], True),
        ([{"type": "Failed", "status": "False"}], True),
        ([{"type": "Failed", "status": "True"}], False),
        ([{"type": "Suspended", "status": "False"}, {"type": "Complete", "status": "True"}], False),
    ],
)
def test_a_job_of_kubernetes_that_is_over_does_not_run(
    monkeypatch: pytest.MonkeyPatch, conditions: list[Any], runs: bool
) -> None:
    found = job(controller="Job")
    found._made = [(CONTROLLERS["Job"].resource, "trainers")]
    monkeypatch.setattr(
        found, "_api", lambda: Answers({"jobs": {"status": {"conditions": conditions}}})
    )
    assert found._is_running() is runs


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ({"metadata": {}}, "another program has made it"),
        (
            {"metadata": {"annotations": {"monarch.pytorch.org/user": "nobody else"}}},
            "nobody else has made it",
        ),
        ({"metadata": {"deletionTimestamp": "now"}}, "it is just being deleted"),
        (None, "it is just being deleted"),
    ],
)
def test_an_object_that_is_not_known_to_be_ours_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, there: Any, why: str
) -> None:
    found = job(controller="Job")
    found.add_mesh("trainers", 1, image_spec=ImageSpec("i"))
    api = Answers({"secrets": there})
    monkeypatch.setattr(found, "_api", lambda: api)
    with pytest.raises(JobError, match=f"there is secrets 'trainers-monarch' .* and {why}"):
        found.apply()
    assert api.changed == []


@pytest.mark.parametrize(
    "ask", [lambda api: api.list(PODS), lambda api: list(api.watch(PODS, "1", 1))]
)
def test_an_answer_that_is_cut_off_counts_as_none(ask: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"items": [')

        server = threading.Thread(target=serve)
        server.start()
        try:
            with pytest.raises(ApiError, match="the API of Kubernetes") as caught:
                ask(Api(Server(f"http://127.0.0.1:{listener.getsockname()[1]}", dict), "tests"))
        finally:
            server.join()
    assert caught.value.is_transient


# the manifests of the example


MANIFESTS = sorted((Path(__file__).parents[2] / "examples" / "kubernetes").glob("*.yaml"))


def test_manifests_and_what_jobs_ask_for_follow_the_schema_of_kubernetes() -> None:
    client = pytest.importorskip("kubernetes").client
    yaml = pytest.importorskip("yaml")
    things = [thing for path in MANIFESTS for thing in yaml.safe_load_all(path.read_text())]
    volcano = [thing for thing in things if "volcano" in thing["apiVersion"]]
    pods = [task["template"] for thing in volcano for task in thing["spec"]["tasks"]]
    image = ImageSpec("i:1", {"cpu": 4}, enable_fuse=True, shared_memory_size="1Gi")
    mesh = Mesh(
        "trainers",
        2,
        "",
        "",
        template=template_of("trainers", image, 26600),
        labels={"a": "b"},
        annotations={},
    )
    things += [mesh_object(kind, mesh, "s", 60, "me") for kind in ("StatefulSet", "Job")]
    pods.append(mesh_object("MonarchMesh", mesh, "s", 60, "me")["spec"]["podTemplate"])
    models = {
        "ServiceAccount": client.V1ServiceAccount,
        "Role": client.V1Role,
        "RoleBinding": client.V1RoleBinding,
        "Job": client.V1Job,
        "StatefulSet": client.V1StatefulSet,
    }
    known = [(models[thing["kind"]], thing) for thing in things if thing not in volcano]
    for model, thing in [*known, *((client.V1PodTemplateSpec, pod) for pod in pods)]:
        # what the schema does not know is lost on the way, and a wrong type raises
        assert client.ApiClient().sanitize_for_serialization(_read(client, model, thing)) == thing


def _read(client: Any, model: Any, thing: Any) -> Any:
    class Answer:
        data = json.dumps(thing)

    try:
        return client.ApiClient().deserialize(Answer, model.__name__)
    except TypeError:  # another release
        return client.ApiClient().deserialize(Answer.data, model.__name__, "application/json")
