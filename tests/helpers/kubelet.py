"""The nodes of the Kubernetes of tests: each container is a process on this machine, each pod an
address of its loopback.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Object = dict[str, Any]
POD = "MONARCH_TEST_POD"
"""Environment variable of all processes of a pod: its uid."""

GPUS = 4  # of all nodes
_LOOK = 0.02  # seconds
_TRIES = 2  # after which a container that ends is waited with


class Kubelet:
    """Args:
    tag: Which Kubernetes it is of.
    changed: Tells the API that the status of a pod is another.
    gone: Tells it that a pod has ended.
    event: Tells of an event of a pod: reason and message.
    """

    def __init__(
        self,
        tag: str,
        changed: Callable[[Object], None],
        gone: Callable[[Object], None],
        event: Callable[[Object, str, str], None],
    ) -> None:
        self._tag, self._changed, self._gone, self._event = tag, changed, gone, event
        self._addresses = 1
        self._lost: set[str] = set()
        self._evicted: set[str] = set()
        self._last: dict[str, Object] = {}  # by uid of the pod, how its container has ended last
        self.folder = Path(tempfile.mkdtemp(prefix="mk"))

    async def run(self, pod: Object, secrets: Callable[[str, str], str]) -> None:
        """Run a pod, until it is deleted."""
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        if not await self._schedule(pod, container):
            self._gone(pod)
            return
        self._addresses += 1
        pod["status"]["podIP"] = f"127.0.{self._addresses >> 8}.{self._addresses & 255}"
        tries = 0
        while not _ends(pod):
            state: Object = {"waiting": {"reason": "ContainerCreating"}}
            image = container["image"]
            if image.startswith("missing/"):
                state = {
                    "waiting": {
                        "reason": "ImagePullBackOff",
                        "message": f'Back-off pulling image "{image}"',
                    }
                }
                self._event(pod, "Failed", f'Failed to pull image "{image}": not found')
                self._set(pod, "Pending", state)
                await _until(lambda: _ends(pod))
                break
            self._set(pod, "Pending", state)
            process = self._start(pod, container, secrets)
            status = await self._watch(pod, container, process)
            tries += 1
            if _ends(pod):
                break
            if pod["metadata"]["uid"] in self._evicted:
                why = "The node was low on resource: memory."
                pod["status"] |= {"reason": "Evicted", "message": why}
                self._set(pod, "Failed")
                await _until(lambda: _ends(pod))
                break
            # the limit of a container is what mostly kills it
            reason = {0: "Completed", -signal.SIGKILL: "OOMKilled"}.get(status, "Error")
            code = 128 - status if status < 0 else status
            state = {"terminated": {"exitCode": code, "reason": reason}}
            self._last[pod["metadata"]["uid"]] = state
            if status == 0 and pod["spec"].get("restartPolicy", "Always") != "Always":
                self._set(pod, "Succeeded", state)
                await _until(lambda: _ends(pod))
                break
            if tries >= _TRIES and status not in (0, -9, 137):
                message = f"back-off 10s restarting failed container={container['name']} pod={name}"
                self._set(
                    pod, "Running", {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
                )
                self._event(
                    pod, "BackOff", f"Back-off restarting failed container {container['name']}"
                )
                await _until(lambda: _ends(pod))
                break
        self._gone(pod)

    def evict(self, pod: Object) -> None:
        """Its node has no memory left."""
        self._evicted.add(pod["metadata"]["uid"])
        for pid in self.processes(pod["metadata"]["uid"]):
            os.kill(pid, signal.SIGKILL)

    def lose(self, pod: Object) -> None:
        """Its node is gone."""
        pod["spec"]["terminationGracePeriodSeconds"] = 0
        self._lost.add(pod["metadata"]["uid"])
        self._set(pod, "Running", Ready=("False", "NodeLost", ""))

    def log(self, pod: str) -> str:
        """What its container has printed."""
        path = self.folder / f"{pod}.log"
        return path.read_text() if path.exists() else ""

    def processes(self, uid: str = "") -> list[int]:
        """Those of a pod, or of all."""
        needle = f"{POD}={self._tag}/{uid}"
        found = []
        for entry in os.listdir("/proc"):
            try:
                lines = (
                    Path(f"/proc/{entry}/environ").read_text(errors="replace")
                    if entry.isdigit()
                    else ""
                )
            except OSError:
                continue
            if any(line.startswith(needle) for line in lines.split("\0")):
                found.append(int(entry))
        return found

    def end(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _schedule(self, pod: Object, container: Object) -> bool:
        if pod["spec"].get("schedulingGates"):
            why = "Scheduling is blocked due to non-empty scheduling gates"
            self._set(pod, "Pending", PodScheduled=("False", "SchedulingGated", why))
            await _until(lambda: _ends(pod) or not pod["spec"]["schedulingGates"])
            if _ends(pod):
                return False
        wanted = int(container.get("resources", {}).get("requests", {}).get("nvidia.com/gpu", 0))
        if wanted > GPUS:
            why = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
            self._event(pod, "FailedScheduling", why)
            self._set(pod, "Pending", PodScheduled=("False", "Unschedulable", why))
            await _until(lambda: _ends(pod))
            return False
        return True

    def _start(
        self, pod: Object, container: Object, secrets: Callable[[str, str], str]
    ) -> subprocess.Popen[bytes]:
        address = pod["status"]["podIP"]
        temporary = self.folder / pod["metadata"]["uid"]
        temporary.mkdir(exist_ok=True)
        env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(temporary),
            "TMPDIR": str(temporary),
            "HOSTNAME": pod["metadata"]["name"],
            POD: f"{self._tag}/{pod['metadata']['uid']}",
        }
        for each in container.get("env", []):
            env[each["name"]] = _value(each, pod, secrets)
        command = [*container.get("command", []), *container.get("args", [])]
        # There is no network of its own around a pod here: each listens at its own address alone.
        command = [word.replace('"bind": "*"', f'"bind": "{address}"') for word in command]
        with (self.folder / f"{pod['metadata']['name']}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env=env,
                cwd=temporary,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def _watch(self, pod: Object, container: Object, process: subprocess.Popen[bytes]) -> int:
        """Until it ends; what it leaves is killed, as the namespace of a container does."""
        probe = (container.get("readinessProbe") or {}).get("tcpSocket")
        deadline, is_ready = None, False
        loop = asyncio.get_running_loop()
        self._set(pod, "Running", {"running": {}})
        while process.poll() is None:
            if _ends(pod) and deadline is None:
                deadline = loop.time() + pod["spec"].get("terminationGracePeriodSeconds", 30)
                process.send_signal(signal.SIGTERM)
            elif deadline is not None and loop.time() > deadline:
                process.kill()
            is_lost = pod["metadata"]["uid"] in self._lost
            if (
                not _ends(pod)
                and not is_lost
                and is_ready
                != (now := probe is None or _listens(pod["status"]["podIP"], probe["port"]))
            ):
                is_ready = now
                self._set(pod, "Running", {"running": {}}, Ready=(str(now), "", ""))
            await asyncio.sleep(_LOOK)
        for pid in self.processes(pod["metadata"]["uid"]):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        await _until(lambda: not self.processes(pod["metadata"]["uid"]))
        shutil.rmtree(self.folder / pod["metadata"]["uid"], ignore_errors=True)
        return process.returncode

    def _set(
        self,
        pod: Object,
        phase: str,
        state: Object | None = None,
        **conditions: tuple[str, str, str],
    ) -> None:
        known = {"PodScheduled": ("True", "", ""), "Ready": ("False", "", ""), **conditions}
        status = pod["status"]
        status["phase"] = phase
        status["conditions"] = [
            {"type": kind, "status": value, "reason": reason, "message": message}
            for kind, (value, reason, message) in known.items()
        ]
        if state is not None:
            name = pod["spec"]["containers"][0]["name"]
            ready = known["Ready"][0] == "True"
            status["containerStatuses"] = [
                {
                    "name": name,
                    "state": state,
                    "lastState": self._last.get(pod["metadata"]["uid"], {}),
                    "ready": ready,
                    "image": "",
                    "imageID": "",
                    "restartCount": 0,
                }
            ]
        self._changed(pod)


def _value(each: Object, pod: Object, secrets: Callable[[str, str], str]) -> str:
    if "value" in each:
        return str(each["value"])
    source = each["valueFrom"]
    if "secretKeyRef" in source:
        return secrets(source["secretKeyRef"]["name"], source["secretKeyRef"]["key"])
    path = source["fieldRef"]["fieldPath"]
    if path == "status.podIP":
        return str(pod["status"]["podIP"])
    return str(pod["metadata"]["labels"].get(path.partition("'")[2].rstrip("']"), ""))


def _ends(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(_LOOK)
