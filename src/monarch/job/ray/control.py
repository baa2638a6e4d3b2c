"""Talking to a Ray cluster, in a process of its own.

Ray's threads, signal handlers and logs stay out of the user's program.

That process reads requests as lines of JSON from its stdin, and answers each with one. It ends with
its stdin.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..._new_python import main_of
from ...errors import JobError
from ..base.contract import HostId, first_line
from .hosts import RayHosts

_NAMESPACE = "monarch"
_logger = logging.getLogger("monarch.job")
_LIMIT = 120.0  # seconds for an answer; Ray needs some to find out that a cluster does not answer
_TAIL = 4096  # bytes of what it has said in which its last words are
_SHOWN_LINES = 5


class Control:
    """A connection to a cluster. It ends with this program.

    Args:
        address: Of the cluster, as `ray.init` takes it.
        keeper: Name of the keeper of the job.
    """

    def __init__(self, address: str, keeper: str) -> None:
        if importlib.util.find_spec("ray") is None:
            raise JobError(
                "RayJob needs a package that is missing here: pip install 'pymonarch[ray]'"
            )
        self._address = address
        # a pipe would have to be read, or Ray waits once it is full
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-c", main_of(__name__), address, keeper],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if _logger.isEnabledFor(logging.DEBUG) else self._said,
            start_new_session=True,  # Ctrl-C is for the program
        )

    def ask(self, verb: str, **args: Any) -> Any:
        """Return the answer to a request.

        Raises:
            JobError: Ray says no, or nothing for two minutes.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended, and the answer is that
            self._process.stdin.write(json.dumps([verb, args]).encode() + b"\n")
            self._process.stdin.flush()
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        if not poll.poll(_LIMIT * 1000):
            self._process.kill()
            raise JobError(f"Ray at {self._address} did not answer within {_LIMIT:g} s")
        line = self._process.stdout.readline()
        if not line:
            said = "".join(f"\n  | {said}" for said in self._last_words())
            raise JobError(
                f"the connection to Ray at {self._address} is broken{said and f'; it said:{said}'}"
            )
        answer = json.loads(line)
        if "error" in answer:
            raise JobError(f"Ray at {self._address}: {answer['error']}")
        return answer["value"]

    def close(self) -> None:
        """End the connection."""
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def _last_words(self) -> list[str]:
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - _TAIL))
        return self._said.read().decode(errors="replace").splitlines()[-_SHOWN_LINES:]


def main() -> None:
    """Serve one program.

    The arguments are the address of the cluster and the name of the keeper.
    """
    address, keeper = sys.argv[1:]
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # what Ray prints is no answer
        try:
            import ray

            ray.init(
                address=address,
                namespace=_NAMESPACE,
                log_to_driver=False,
                logging_level=logging.ERROR,
                ignore_reinit_error=True,
            )
            cluster: _Cluster | None = _Cluster(keeper)
            trouble = ""
        except Exception as error:
            cluster, trouble = None, first_line(error)
        for line in sys.stdin:
            answer: dict[str, Any] = {"error": trouble}
            if cluster is not None:
                verb, args = json.loads(line)
                try:
                    answer = {"value": getattr(cluster, verb)(**args)}
                except Exception as error:
                    answer = {"error": first_line(error)}
            print(json.dumps(answer), file=out, flush=True)


class _Cluster:
    """The questions to the cluster, by the names of the methods."""

    def __init__(self, keeper: str) -> None:
        self._name = keeper

    def start(
        self,
        bundle: Mapping[str, float],
        runtime_env: Any,
        environment: Mapping[str, str],
        hosts: list[HostId],
    ) -> str:
        """Start the keeper, on the head node; returns the address of the cluster."""
        import ray

        keeper = (
            ray.remote(RayHosts)
            .options(
                name=self._name,
                lifetime="detached",
                num_cpus=0,
                resources={"node:__internal_head__": 0.001},
                runtime_env=runtime_env,
            )
            .remote(bundle, runtime_env, environment)
        )
        ray.get(keeper.add.remote([tuple(host) for host in hosts]))
        address: str = ray.get_runtime_context().gcs_address
        return address

    def look(self, bundle: Mapping[str, float]) -> dict[str, Any] | None:
        """How the job is; None if there is none."""
        import ray

        keeper = self._keeper()
        if keeper is None:
            return None
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        fitting = sum(
            all(node.get(name, 0) >= amount for name, amount in bundle.items()) for node in nodes
        )
        try:
            return {**ray.get(keeper.look.remote()), "nodes": fitting}
        except ray.exceptions.RayActorError:
            return None

    def add(self, hosts: list[HostId]) -> None:
        import ray

        ray.get(self._there().add.remote([tuple(host) for host in hosts]))

    def remove(self, hosts: list[HostId]) -> None:
        import ray

        ray.get(self._there().remove.remote([tuple(host) for host in hosts]))

    def kill(self) -> None:
        import ray

        keeper = self._keeper()
        if keeper is not None:
            ray.kill(keeper)

    def _there(self) -> Any:
        keeper = self._keeper()
        if keeper is None:
            raise ValueError("the job has ended")
        return keeper

    def _keeper(self) -> Any:
        import ray

        try:
            return ray.get_actor(self._name)
        except ValueError:
            return None
