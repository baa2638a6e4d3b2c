"""Jobs on a Kubernetes whose nodes run real workers: hosts that are pods, found again, replaced,
and gone when they are not wanted.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.kubernetes import TOKEN
from helpers.slurm import command_of
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from helpers.jobs import Home
    from helpers.kubernetes import Kubernetes

USE = """
    import os, sys
    from pathlib import Path
    from monarch.actor import Actor, endpoint
    from monarch.job.kubernetes import config as kubernetes_config
    from monarch.job.kubernetes import ImageSpec, KubeConfig, KubernetesJob

    kubernetes_config.ACCOUNT = Path(os.environ["ACCOUNT"])

    class Worker(Actor):
        @endpoint
        def pod(self) -> str:
            return os.environ["HOSTNAME"]

    def ask(hosts):
        with hosts.spawn_procs() as procs:
            return procs.spawn("worker", Worker).pod.call().get().values()
"""
TWO_MESHES = (
    USE
    + """
    if __name__ == "__main__":
        job = KubernetesJob("tests", controller=os.environ.get("CONTROLLER", "MonarchMesh"))
        job.add_mesh("trainers", 2, image_spec=ImageSpec("ours:1"))
        job.add_mesh("generators", 1, image_spec=ImageSpec("ours:1"))
        state = job.state()
        print(ask(state.trainers), ask(state.generators), job.apply_id, flush=True)
        if "kill" in sys.argv:
            job.kill()
"""
)


def in_cluster(kubernetes: Kubernetes, **more: str) -> dict[str, str]:
    """The environment of a program in a pod."""
    where = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(kubernetes.port),
    }
    return {**where, "ACCOUNT": str(kubernetes.folder), **more}


def kill(home: Home, kubernetes: Kubernetes) -> None:
    home.run(
        USE + "    from monarch.job import job_load\n    job_load().kill()\n",
        env=in_cluster(kubernetes),
    )


@pytest.mark.parametrize(
    ("controller", "trainers"),
    [
        ("MonarchMesh", "['trainers-0', 'trainers-1'] ['generators-0'] "),
        ("Job", "['trainers-0-x', 'trainers-1-x'] ['generators-0-x'] "),
    ],
)
def test_two_meshes_are_used_found_again_and_ended(
    home: Home, kubernetes: Kubernetes, controller: str, trainers: str
) -> None:
    env = in_cluster(kubernetes, CONTROLLER=controller)
    first = home.run(TWO_MESHES, env=env)
    assert first.startswith(trainers)
    assert home.run(TWO_MESHES, "kill", env=env) == first
    assert [key for key in kubernetes.objects if key[0] != "events"] == []
    assert kubernetes.processes() == []
    home.wait_nothing_left()
    assert not (home.folder / ".monarch" / "job_state.pkl").exists()


SERVICE = (
    USE
    + """
    import logging
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    kind, limit = os.environ.get("CONTROLLER", "StatefulSet"), float(os.environ.get("LIMIT", 3600))
    job = KubernetesJob("tests", controller=kind, idle_limit=limit)
    job.add_mesh("hosts", 2, image_spec=ImageSpec("ours:1"))
    hosts = job.state().hosts
    worker = hosts.spawn_procs(restart=None).spawn("worker", Worker)
    for part in [worker, worker.slice(hosts=0)]:
        try:
            print(sorted(part.pod.call().get().values()), flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)
        sys.stdin.readline()
    """
)


def worker_of(kubernetes: Kubernetes, pod: str) -> int:
    (pid,) = (pid for pid in kubernetes.processes(pod) if "worker_main" in command_of(pid))
    return pid


def test_lost_workers_and_clients_leave_the_rest_usable_and_pods_come_again(
    home: Home, kubernetes: Kubernetes
) -> None:
    client = home.popen([home.program(SERVICE)], in_cluster(kubernetes), subprocess.PIPE)
    assert client.stdin is not None and client.stdout is not None
    assert client.stdout.readline() == "['hosts-0', 'hosts-1']\n"
    killed = worker_of(kubernetes, "hosts-1")
    os.kill(killed, signal.SIGKILL)
    print(file=client.stdin, flush=True)
    assert client.stdout.readline() == "['hosts-0']\n"
    client.kill()
    client.communicate()
    wait_until(lambda: killed not in kubernetes.processes("hosts-1"), what="the end of the worker")
    kubernetes.delete_pod("hosts-0")  # as when its node is drained: its controller makes another
    said = home.run(SERVICE, env=in_cluster(kubernetes))
    assert said.startswith("['hosts-0', 'hosts-1']\n['hosts-0']\n"), said
    assert "connecting to the job of" in said
    kill(home, kubernetes)


def test_the_end_of_a_pod_is_told_as_kubernetes_tells_it(
    home: Home, kubernetes: Kubernetes
) -> None:
    program = """
    import time
    if __name__ == "__main__":
        job = KubernetesJob("tests", controller="StatefulSet")
        job.add_mesh("hosts", 1, image_spec=ImageSpec("ours:1"))
        worker = job.state(cached_path=None).hosts.spawn_procs(restart=None).spawn("worker", Worker)
        print(*worker.pod.call().get().values(), flush=True)
        time.sleep(600)
    """
    killed = "its container 'worker' has ended with exit status 137: OOMKilled"
    evicted = "Evicted: The node was low on resource: memory."
    for told in (killed, evicted):
        client = home.popen([home.program(USE + program)], in_cluster(kubernetes), subprocess.PIPE)
        assert client.stdout is not None
        assert client.stdout.readline() == "hosts-0\n"
        if told is killed:
            os.kill(worker_of(kubernetes, "hosts-0"), signal.SIGKILL)
        else:
            kubernetes.evict_pod("hosts-0")
        said = client.communicate()[1]
        assert re.search(rf"Kubernetes: .*hosts-0: {told}", said), said
        kubernetes.clear()


def phases(kubernetes: Kubernetes) -> set[str]:
    return {
        kubernetes.objects["pods", name]["status"]["phase"] for name in kubernetes.names("pods")
    }


def test_workers_of_a_job_that_no_client_uses_end_by_themselves(
    home: Home, kubernetes: Kubernetes
) -> None:
    client = home.popen(
        [home.program(SERVICE)],
        in_cluster(kubernetes, LIMIT="5", CONTROLLER="Job"),
        subprocess.PIPE,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "['hosts-0-x', 'hosts-1-x']\n"
    client.kill()
    client.communicate()
    wait_until(lambda: kubernetes.processes() == [], what="the end of the workers")
    wait_until(lambda: phases(kubernetes) == {"Succeeded"}, what="the end of the pods")
    said = home.run(SERVICE, env=in_cluster(kubernetes, LIMIT="5", CONTROLLER="Job"))
    assert said.startswith("['hosts-0-x', 'hosts-1-x']\n"), "the next run starts it anew"
    kubernetes.clear()


def test_a_job_that_is_not_saved_ends_with_its_program(home: Home, kubernetes: Kubernetes) -> None:
    program = """
    job = KubernetesJob("tests")
    job.add_mesh("hosts", 1, image_spec=ImageSpec("ours:1"))
    print(ask(job.state(cached_path=None).hosts))
    """
    assert home.run(USE + program, env=in_cluster(kubernetes)) == "['hosts-0']\n"
    assert kubernetes.names("pods") == kubernetes.names("secrets") == []


OUTSIDE = (
    USE
    + """
    class Configuration:
        host, ssl_ca_cert = os.environ["SERVER"], os.environ["ACCOUNT"] + "/ca.crt"
        cert_file = key_file = proxy = None
        verify_ssl = True

        def auth_settings(self):
            return {"BearerToken": {"in": "header", "key": "authorization", "value": "Bearer a token of tests"}}

    def config():
        if "CONFIG" in os.environ:
            return KubeConfig.from_path(os.environ["CONFIG"])
        return KubeConfig.from_config(Configuration())

    def job():
        job = KubernetesJob("tests", kubeconfig=config())
        job.add_mesh("hosts", 2, image_spec=ImageSpec("ours:1"))
        return job

    if __name__ == "__main__":
        job = job()
        hosts = job.state().hosts
        print(ask(hosts), flush=True)
        if sys.argv[1:] == ["kill"]:
            job.kill()
        elif sys.argv[1:]:
            procs = hosts.spawn_procs()
            worker = procs.spawn("worker", Worker)
            worker.pod.call().get()
            print(flush=True)
            sys.stdin.readline()
            print(worker.pod.call().get().values(), flush=True)
            sys.stdin.readline()
    """
)


def outside(kubernetes: Kubernetes) -> dict[str, str]:
    return {"SERVER": f"https://127.0.0.1:{kubernetes.port}", "ACCOUNT": str(kubernetes.folder)}


def forwards(home: Home) -> list[int]:
    return [pid for pid in home.processes() if command_of(pid).startswith("kubectl ")]


needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed"
)


@needs_kubectl
def test_a_program_outside_of_the_cluster_reaches_its_pods_through_kubectl(
    home: Home, kubernetes: Kubernetes
) -> None:
    client = home.popen([home.program(OUTSIDE), "stay"], outside(kubernetes), subprocess.PIPE)
    assert client.stdin is not None and client.stdout is not None
    said = client.stdout.readline()
    assert said == "['hosts-0', 'hosts-1']\n", client.communicate()[1]
    assert client.stdout.readline() == "\n"
    (forward,) = forwards(home)
    # as if its connection had broken: it is started again, and links go on
    os.kill(forward, signal.SIGKILL)
    wait_until(lambda: [*forwards(home)] not in ([], [forward]), what="another kubectl")
    print(file=client.stdin, flush=True)
    said = client.stdout.readline()
    client.kill()
    assert said == "['hosts-0', 'hosts-1']\n", client.communicate()[1]
    client.communicate()
    wait_until(lambda: home.processes() == [], what="the end of kubectl")
    assert home.run(OUTSIDE, "kill", env=outside(kubernetes)).endswith("['hosts-0', 'hosts-1']\n")
    home.wait_nothing_left()


def test_a_kubeconfig_file_says_where_the_cluster_is(home: Home, kubernetes: Kubernetes) -> None:
    pytest.importorskip("kubernetes")
    config = json.loads((kubernetes.folder / "kubeconfig").read_text())
    config["users"][0]["user"] = {"exec": plugin()}
    (home.folder / "kubeconfig").write_text(json.dumps(config))
    env = {**outside(kubernetes), "CONFIG": str(home.folder / "kubeconfig")}
    program = (
        OUTSIDE.replace("print(ask(hosts), flush=True)", "")
        if shutil.which("kubectl") is None
        else OUTSIDE
    )
    assert home.run(program, "kill", env=env).startswith("['hosts-0', 'hosts-1']\n")


def plugin() -> dict[str, Any]:
    """A program that a kubeconfig names, which prints credentials."""
    answer = {
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1",
        "status": {"token": TOKEN},
    }
    command = {"command": "echo", "args": [json.dumps(answer)], "interactiveMode": "Never"}
    return {"apiVersion": "client.authentication.k8s.io/v1", **command}


ONE = (
    USE
    + """
    def run(mesh={"image_spec": ImageSpec("ours:1")}, controller="Job", **more):
        job = KubernetesJob("tests", controller=controller, **more)
        job.add_mesh("hosts", 1, **mesh)
        try:
            print(ask(job.state().hosts))
        except RuntimeError as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        return job
    """
)


def test_a_pod_that_can_not_come_up_is_an_error_with_its_events(
    home: Home, kubernetes: Kubernetes
) -> None:
    program = """
    run({"image_spec": ImageSpec("missing/x:1")})  # not ended, so the next run of the program starts it anew
    run()
    run({"image_spec": ImageSpec("missing/x:1")}).kill()
    gpus = {"image_spec": ImageSpec("ours:1", resources={"nvidia.com/gpu": 8})}
    run(gpus, schedule_timeout=0.5).kill()
    run(gpus, timeout=0.5).kill()
    container = {"name": "w", "image": "ours:1", "command": ["sh", "-c", "echo no GPU; exit 3"]}
    run({"pod_template": {"spec": {"containers": [container]}}}).kill()
    """
    said = home.run(ONE + program, env=in_cluster(kubernetes))
    missing = (
        "JobError: mesh 'hosts': pod 'hosts-0-x': it does not come up: ImagePullBackOff: Back-off"
        " pulling image"
    )
    assert said.count(missing) == 2, said
    for part in (
        "event: Failed: Failed to pull image",
        "which runs and is not what this program describes",
        (
            "no node has had room for it for 0.5 s (schedule_timeout): Unschedulable: 0/3 nodes are"
            " available: 3 Insufficient nvidia"
        ),
        "event: FailedScheduling: 0/3 nodes",
        (
            "did not come up within 0.5 s (timeout): hosts: 0 of 1 pods serve, missing ranks 0"
            " (hosts-0-x: Unschedulable:"
        ),
        "CrashLoopBackOff: back-off",
        "  | no GPU",
    ):
        assert part in said, said


def test_what_is_forbidden_is_an_error_that_names_the_missing_verb(
    home: Home, kubernetes: Kubernetes
) -> None:
    kubernetes.denied = {("create", "jobs"), ("watch", "pods"), ("list", "events")}
    program = """
    run()
    run(controller="StatefulSet").kill()
    run({"image_spec": ImageSpec("missing/x")}, controller="StatefulSet").kill()
    """
    said = home.run(ONE + program, env=in_cluster(kubernetes))
    for group, resource, verb in (("batch", "jobs", "create"), ("", "pods", "watch")):
        assert f'apiGroups: ["{group}"], resources: [{resource}], verbs: [{verb}]' in said


def test_a_token_that_is_not_accepted_is_an_error_that_says_so(
    home: Home, kubernetes: Kubernetes
) -> None:
    (home.folder / "token").write_text("an old one")
    shutil.copy(kubernetes.folder / "ca.crt", home.folder)
    said = home.run(ONE + "run()", env={**in_cluster(kubernetes), "ACCOUNT": str(home.folder)})
    assert (
        "does not accept the credentials (Unauthorized): the token has expired"
        in said.splitlines()[-1]
    )


def test_a_watch_that_is_too_old_and_a_server_that_is_away_hold_up_nothing(
    home: Home, kubernetes: Kubernetes
) -> None:
    program = (
        ONE
        + """
    job = KubernetesJob("tests", controller="Job")
    job.add_mesh("hosts", 1, image_spec=ImageSpec("ours:1"))
    job.apply()
    Path("applied").touch()
    sys.stdin.readline()
    print(ask(job.state().hosts))
    job.kill()
    """
    )
    client = home.popen([home.program(program)], in_cluster(kubernetes), subprocess.PIPE)
    wait_until((home.folder / "applied").exists, what="the pods to be asked for")
    kubernetes.expired = True
    kubernetes.requests.clear()
    worker = wait_until(lambda: kubernetes.processes(), what="the worker")[0]
    os.kill(worker, signal.SIGSTOP)  # it does not serve before the watch has begun
    assert client.stdin is not None
    print(file=client.stdin, flush=True)
    wait_until(lambda: kubernetes.requests.count("watch pods") > 1, what="a second watch")
    assert kubernetes.requests.count("list pods") > 1, (
        "a version that is too old is not tried again"
    )
    kubernetes.outages = 2
    wait_until(lambda: kubernetes.outages == 0, what="requests that are not answered")
    os.kill(worker, signal.SIGCONT)
    out, err = client.communicate(timeout=60)
    assert out == "['hosts-0-x']\n", err


def test_pods_of_others_are_used_and_left_alone(home: Home, kubernetes: Kubernetes) -> None:
    secret = "a secret of a team, long enough"
    worker = {
        "name": "worker",
        "image": "theirs",
        "env": [{"name": "MONARCH_SECRET", "value": secret}],
    }
    for rank in (0, 1, 7):
        port = 27000 + rank
        command = ["python", "-m", "monarch.tools", "worker", "--listen", f"tcp://*:{port}"]
        own = {**worker, "command": command, "readinessProbe": {"tcpSocket": {"port": port}}}
        own["env"] = [*worker["env"], {"name": "MONARCH_PORT", "value": str(port)}]
        kubernetes.add_pod(
            f"task-{rank}",
            {"volcano.sh/job-name": "j", "volcano.sh/task-index": str(rank)},
            containers=[own],
        )
    program = f"""
    job = KubernetesJob("tests", secret={secret!r})
    job.add_mesh("hosts", 2, label_selector="volcano.sh/job-name=j", pod_rank_label="volcano.sh/task-index")
    print(ask(job.state().hosts))
    job.kill()
    """
    said = home.run(ONE + program, env=in_cluster(kubernetes))
    assert "['task-0', 'task-1']" in said
    assert (
        "pod task-7 is no host of mesh 'hosts', which has ranks 0 to 1: it has"
        " volcano.sh/task-index=7" in said
    )
    assert kubernetes.clear() == ["pods task-0", "pods task-1", "pods task-7"]


@pytest.mark.parametrize(
    ("controller", "why"),
    [
        ("Job", "jobs 'hosts' is suspended, as a queue has not admitted it"),
        (
            "StatefulSet",
            "hosts-0: SchedulingGated: Scheduling is blocked due to non-empty scheduling gates",
        ),
    ],
)
def test_a_job_that_kueue_has_queued_says_so_and_runs_when_it_is_admitted(
    home: Home, kubernetes: Kubernetes, controller: str, why: str
) -> None:
    kubernetes.has_kueue = True
    program = f"""
    from monarch.job.base import waiting
    waiting._LINES_AFTER = 0.0
    waiting._PERIOD = 0.1
    job = KubernetesJob("tests", controller={controller!r}, schedule_timeout=0.1)
    job.add_mesh("hosts", 2, image_spec=ImageSpec("ours:1"), labels={{"kueue.x-k8s.io/queue-name": "research"}})
    print(len(ask(job.state().hosts)), flush=True)
    job.kill()
    """
    client = home.start(USE + program, env=in_cluster(kubernetes))
    assert client.stderr is not None
    for line in client.stderr:
        if why in line:
            break
    else:
        raise AssertionError(f"it does not say {why!r}")
    kubernetes.admit("another")
    assert kubernetes.processes() == []
    kubernetes.admit("research")
    assert home.finish(client, 0).startswith("2\n")
    home.wait_nothing_left()


def test_a_mesh_grows_and_shrinks_and_lost_pods_are_replaced(
    home: Home, kubernetes: Kubernetes
) -> None:
    program = """
    import logging
    logging.basicConfig(format="%(message)s")
    job = KubernetesJob("tests", controller="Job")
    job.add_mesh("hosts", 1, image_spec=ImageSpec("ours:1"))
    print(ask(job.state().hosts))
    job.scale(hosts=2)
    print(ask(job.state().hosts), flush=True)
    sys.stdin.readline()
    job.scale(hosts=2, replace_lost=True)
    print(ask(job.state().hosts))
    job.scale(hosts=1)
    print(ask(job.state().hosts))
    job.kill()
    """
    client = home.popen([home.program(USE + program)], in_cluster(kubernetes), subprocess.PIPE)
    assert client.stdin is not None and client.stdout is not None
    assert client.stdout.readline() == "['hosts-0-x']\n"
    assert client.stdout.readline() == "['hosts-0-x', 'hosts-1-x']\n"
    stopped = worker_of(kubernetes, "hosts-1-x")
    # its node is gone: it is not ready any more, and nothing says that it has ended
    kubernetes.lose_pod("hosts-1-x")
    print(file=client.stdin, flush=True)
    out, err = client.communicate(timeout=60)
    assert out == "['hosts-0-x', 'hosts-1-x']\n['hosts-0-x']\n", err
    assert "host 1 of mesh 'hosts' was lost; another takes its place" in err
    assert stopped not in kubernetes.processes()


def test_pods_of_a_job_that_have_completed_are_not_replaced_and_scale_says_so(
    home: Home, kubernetes: Kubernetes
) -> None:
    program = """
    from monarch.actor import attach_to_workers
    from monarch.job import JobError
    job = KubernetesJob("tests", controller="Job")
    job.add_mesh("hosts", 2, image_spec=ImageSpec("ours:1"))
    print(ask(job.state().hosts))
    address = job._addresses()["hosts"][1]
    attach_to_workers(workers=[address], secret=job._secret()).shutdown().get()
    print("ended", flush=True)
    sys.stdin.readline()
    for size in (2, 3):
        try:
            job.scale(hosts=size, replace_lost=True)
        except JobError as error:
            print(error)
    job.kill()
    """
    client = home.popen([home.program(USE + program)], in_cluster(kubernetes), subprocess.PIPE)
    assert client.stdin is not None and client.stdout is not None
    assert client.stdout.readline() == "['hosts-0-x', 'hosts-1-x']\n"
    assert client.stdout.readline() == "ended\n"
    wait_until(lambda: "Succeeded" in phases(kubernetes), what="the end of the pod")
    print(file=client.stdin, flush=True)
    out, err = client.communicate(timeout=60)
    refused = (
        "host 1 of mesh 'hosts' can't be replaced: pod hosts-1-x has completed: its worker has"
        " ended in order, shut down or after idle_limit, and a Job starts it only once. kill() the"
        " job, and state() starts it anew\n"
    )
    assert out == refused * 2, err


def test_the_role_of_the_example_allows_what_jobs_do(home: Home, kubernetes: Kubernetes) -> None:
    text = (
        (Path(__file__).parents[2] / "examples" / "kubernetes" / "access.yaml")
        .read_text()
        .partition("---\n# Beside that")[0]
    )
    rules = re.findall(r"resources: \[(\S+)\]\n +verbs: \[(.*?)\]", text)
    kubernetes.allowed = {
        (verb, resource) for resource, verbs in rules for verb in verbs.split(", ")
    }
    assert len(kubernetes.allowed) > 15
    program = """
    container = {"name": "w", "image": "ours:1", "command": ["sh", "-c", "echo no GPU; exit 3"]}
    print(run({"pod_template": {"spec": {"containers": [container]}}}).kill())
    for controller in ("Job", "StatefulSet", "MonarchMesh"):
        job = run(controller=controller)
        job.scale(hosts=2)
        job.scale(hosts=1)
        job.scale(replace_lost=True)
        job._create(None)  # of a program that has lost the file
        job.kill()
    """
    said = home.run(ONE + program, env=in_cluster(kubernetes))
    assert kubernetes.refused == []
    assert "| no GPU" in said
    assert said.count("it is changed into what this job describes") == 3, said


@needs_kubectl
def test_the_example_trains_on_pods_from_outside_of_the_cluster(
    home: Home, kubernetes: Kubernetes
) -> None:
    pytest.importorskip("kubernetes")
    example = str(Path(__file__).parents[2] / "examples" / "kubernetes" / "train.py")
    config = str(kubernetes.folder / "kubeconfig")
    # else it stays in the folder for temporary files
    torch = {"TORCHINDUCTOR_CACHE_DIR": str(home.folder / "torch")}
    said = home.finish(home.popen([example, "ours:1", "1", "0", config], torch), 0)
    assert "2 ranks, loss of each: 0.0" in said
    home.monarch("kill")


UNDER_TEST = "KUBECONFIG_UNDER_TEST"
needs_cluster = pytest.mark.skipif(
    UNDER_TEST not in os.environ,
    reason=(
        f"{UNDER_TEST} names no kubeconfig of a real cluster; its pods run the image"
        " IMAGE_UNDER_TEST"
    ),
)


def kubectl(config: Path, cache: Path, *args: str, stdin: str = "") -> str:
    """What kubectl says."""
    command = ["kubectl", "--kubeconfig", str(config), "--cache-dir", str(cache), *args]
    environment = {**os.environ, "HOME": str(cache)}
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=300, env=environment
    )
    return done.stdout + done.stderr


@needs_kubectl
@pytest.mark.parametrize("server", ["of these tests", pytest.param("real", marks=needs_cluster)])
def test_kubectl_finds_what_it_expects_of_a_server(
    kubernetes: Kubernetes, tmp_path: Path, server: str
) -> None:
    is_real = server == "real"
    config = Path(os.environ[UNDER_TEST]) if is_real else kubernetes.folder / "kubeconfig"

    def say(*args: str, stdin: str = "") -> str:
        return kubectl(config, tmp_path, *args, stdin=stdin)

    labels, image = {"team": "monarch-a"}, os.environ.get("IMAGE_UNDER_TEST", "i")
    sleeper = {
        "name": "worker",
        "image": image,
        "command": ["sh", "-c", "echo up; exec sleep 1000"],
    }
    if is_real:
        metadata = {"name": "mine", "labels": labels}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [sleeper]},
        }
        assert "created" in say("create", "-f", "-", stdin=json.dumps(pod))
    else:
        kubernetes.add_pod("mine", labels, containers=[sleeper])
    try:
        assert say("get", "pods", "-l", "team=monarch-a", "-o", "name") == "pod/mine\n"
        assert "pod/" not in say("get", "pods", "-l", "team=monarch-b", "-o", "name")
        assert "condition met" in say("wait", "--for=condition=Ready", "pod/mine", "--timeout=120s")
        wait_until(lambda: say("logs", "mine") == "up\n", what="the output of the pod")
        assert "(NotFound)" in say("get", "statefulsets", "x")
    finally:
        assert "deleted" in say("delete", "pod", "mine")
    assert say("get", "pods", "-l", "team=monarch-a", "-o", "name").count("pod/") == 0


@needs_cluster
@needs_kubectl
@pytest.mark.parametrize("controller", ["StatefulSet", "Job"])
def test_a_real_cluster_runs_a_job_as_that_of_these_tests_does(
    home: Home, tmp_path: Path, controller: str
) -> None:
    pytest.importorskip("kubernetes")
    program = f"""
    if __name__ == "__main__":
        config = KubeConfig.from_path(os.environ[{UNDER_TEST!r}])
        job = KubernetesJob("default", timeout=600, kubeconfig=config, controller={controller!r})
        job.add_mesh("undertest", 2, image_spec=ImageSpec(os.environ["IMAGE_UNDER_TEST"]))
        print(ask(job.state().undertest), job.apply_id)
        if "kill" in sys.argv:
            job.kill()
    """
    env = {"ACCOUNT": "/nowhere"}
    first = home.run(USE + program, env=env).splitlines()[0]
    assert first.count("undertest-") == 2
    kubectl(
        Path(os.environ[UNDER_TEST]),
        tmp_path,
        "delete",
        "pod",
        "-l",
        "monarch.pytorch.org/mesh-name=undertest",
    )
    again = home.run(USE + program, "kill", env=env).splitlines()[0]
    assert again.split()[-1] == first.split()[-1]
    left = kubectl(
        Path(os.environ[UNDER_TEST]), tmp_path, "get", "pods,secrets,services", "-o", "name"
    )
    assert "undertest" not in left
