"""The Ray actors of a job.

They are a keeper that lives as long as the job, and an actor on each host that starts its worker.

The keeper is detached, so it outlives the program that has started it. It owns the placement groups
and the other actors: Ray ends them with it, and each worker has its end of a lifeline to its actor.
So `ray.kill` of the keeper ends everything; and it ends itself when the last worker has ended,
which gives the resources back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..base.contract import HostId
from ..base.launch import MOST_REPORT, describe_status, start_child
from ..base.worker_spec import WorkerSpec

_LOOK = 1.0  # seconds
_TELLING = 60.0  # seconds that the keeper of hosts that did not come up stays, to say why


class RayHost:
    """One worker, on the node where this actor is placed.

    Args:
        host: Which one it is.
        environment: Variables for the worker.
    """

    def __init__(self, host: HostId, environment: Mapping[str, str]) -> None:
        import ray

        address = ray.util.get_node_ip_address()
        listen = f"tcp://[{address}]:0" if ":" in address else f"tcp://{address}:0"
        spec = WorkerSpec(host[0], str(host[1]), listen)
        self._worker, self._lifeline = start_child(spec, {**os.environ, **environment})

    def report(self) -> str:
        """Return what the worker says once it serves."""
        said = self._lifeline.recv(MOST_REPORT)
        if not said:
            raise RuntimeError(
                f"the worker has ended with exit status {self._worker.wait()}; Ray has its output"
            )
        return said.decode()

    def wait(self) -> int:
        """Return the exit status of the worker, when it has ended."""
        return self._worker.wait()


class _Placed(NamedTuple):
    group: Any
    bundle: int
    actor: Any
    report: Any
    ended: Any


class RayHosts:
    """Owner of the hosts of a job.

    Args:
        bundle: What each host needs, by resource.
        runtime_env: Of Ray, for the workers.
        environment: Variables for them.
    """

    def __init__(
        self, bundle: Mapping[str, float], runtime_env: Any, environment: Mapping[str, str]
    ) -> None:
        self._bundle = dict(bundle)
        self._runtime_env = runtime_env
        self._environment = environment
        self._lock = threading.Lock()
        self._placed: dict[HostId, _Placed] = {}
        self._told = threading.Event()  # why hosts did not come up
        threading.Thread(target=self._watch, name="monarch-keeper", daemon=True).start()

    def add(self, hosts: Sequence[HostId]) -> None:
        """Ask for further hosts, each on its own node, or for replacements of lost ones."""
        import ray
        from ray.util.placement_group import placement_group

        with self._lock:
            lost = {host: self._placed[host] for host in hosts if host in self._placed}
        # Ray moves the bundles of a lost node to another one by itself
        for host, placed in lost.items():
            ray.kill(placed.actor)
            self._place(host, placed.group, placed.bundle)
        if further := [host for host in hosts if host not in lost]:
            group = placement_group([self._bundle] * len(further), strategy="STRICT_SPREAD")
            for index, host in enumerate(further):
                self._place(host, group, index)

    def _place(self, host: HostId, group: Any, index: int) -> None:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        actor = (
            ray.remote(RayHost)
            .options(
                **actor_resources(self._bundle),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, index),
                runtime_env=self._runtime_env,
            )
            .remote(host, self._environment)
        )
        with self._lock:
            self._placed[host] = _Placed(
                group, index, actor, actor.report.remote(), actor.wait.remote()
            )

    def remove(self, hosts: Sequence[HostId]) -> None:
        """End hosts. Their resources are free when all that were asked for with them have ended."""
        import ray

        with self._lock:
            gone = [self._placed.pop(host) for host in hosts if host in self._placed]
            used = {placed.group.id for placed in self._placed.values()}
        for placed in gone:
            ray.kill(placed.actor)
        for group in {
            placed.group.id: placed.group for placed in gone if placed.group.id not in used
        }.values():
            ray.util.remove_placement_group(group)

    def look(self) -> dict[str, list[Any]]:
        """Return the reports of the workers that serve, why others do not, and how some ended."""
        found = self._found()
        if found["failed"]:
            self._told.set()
        return found

    def _found(self) -> dict[str, list[Any]]:
        import ray

        with self._lock:
            placed = dict(self._placed)
        found: dict[str, list[Any]] = {"reports": [], "failed": [], "ended": []}
        refs = [ref for each in placed.values() for ref in (each.report, each.ended)]
        done, _ = ray.wait(refs, num_returns=len(refs), timeout=0) if refs else ([], [])
        for host, each in placed.items():
            try:
                found["reports"] += [ray.get(each.report)] if each.report in done else []
            except Exception as error:
                found["failed"].append([*host, _cause(error)])
            try:
                if each.ended in done:
                    said = f"its worker has ended{describe_status(ray.get(each.ended))}"
                    found["ended"].append([*host, said])
            except Exception as error:
                found["ended"].append([*host, _cause(error)])
        return found

    def _watch(self) -> None:
        """End the job when no worker is left. Ends with the actor."""
        import ray

        while True:
            with self._lock:
                ends = [placed.ended for placed in self._placed.values()]
            done, _ = ray.wait(ends, num_returns=len(ends), timeout=_LOOK) if ends else ([], [])
            if ends and len(done) == len(ends) and self._found()["failed"]:
                self._told.wait(_TELLING)
            with self._lock:
                if ends and len(done) == len(ends) == len(self._placed):
                    ray.kill(ray.get_runtime_context().current_actor)
            threading.Event().wait(_LOOK)


def _cause(error: Exception) -> str:
    """Return in a line what an actor has raised, or how Ray tells its end: after where it was."""
    return [line for line in str(error).splitlines() if line.strip() == line != ""][-1]


def actor_resources(bundle: Mapping[str, float]) -> dict[str, Any]:
    """Return the options of a Ray actor that takes a whole bundle."""
    rest = {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU")}
    return {"num_cpus": bundle.get("CPU", 0), "num_gpus": bundle.get("GPU", 0), "resources": rest}
