"""The way of a program outside of a cluster to a worker in it: ``kubectl port-forward`` to its pod.

kubectl runs under a shell that ends it when this program ends, however that happens: the program
holds the other end of the shell's stdin. If kubectl ends by itself, as when its connection breaks,
it is started again at the same local port, and the links over it go on, however long that takes;
where it takes longer than a link may be down, they end as in a network that is cut. What ends that:
`close`, the end of the program, or of the pod.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from pathlib import Path

from ..._patterns.attaching import forwarded
from ...errors import JobError
from .config import KubeConfig

_LIMIT = 30.0  # seconds until kubectl listens
_AGAIN = 0.5  # seconds before it is started again
_LISTENS = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) -> ")
_GONE = re.compile(r"\(NotFound\)|not found|not running|current phase")
# The shell lets go of the output, so that it ends with kubectl; and it removes the folder with
# credentials.
_LEASH = (
    'folder=$1; shift; "$@" & kubectl=$!; exec >/dev/null 2>&1; cat; kill $kubectl; [ -z "$folder"'
    ' ] || rm -r "$folder"'
)

logger = logging.getLogger("monarch.job")


class Forward:
    """A local port that leads to a pod.

    Args:
        config: Of the cluster.
        namespace: Of the pod.
        pod: Its name.
        port: Of the pod.

    Raises:
        JobError: There is no kubectl, or it does not get there, with what it said.
    """

    def __init__(self, config: KubeConfig, namespace: str, pod: str, port: int) -> None:
        if shutil.which("kubectl") is None:
            raise JobError(
                "there is no kubectl on the PATH of this machine, through which a program outside"
                " of the cluster reaches pods: install it, or forward a port by other means and say"
                " where: KubernetesJob(..., attach_to='tcp://127.0.0.1:26600')"
            )
        self._closed = threading.Event()
        self._listens = threading.Event()  # or it never will
        self._local = 0  # any port, the first time
        self._remote = port
        self._pod = pod
        self._said: deque[str] = deque(maxlen=5)
        self._config, self._namespace = config, namespace
        self._error: Exception | None = None  # that kept kubectl from being started
        self._shell: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="monarch-kubectl", daemon=True).start()
        in_time = self._listens.wait(_LIMIT)
        if not self._local:
            self.close()
            if self._error is not None:
                raise JobError(
                    f"kubectl port-forward to pod {pod!r} can't be started: {self._error}"
                ) from self._error
            said = "\n".join(f"  | {line}" for line in self._said) or "  | nothing"
            how = "has ended" if in_time else f"does not listen after {_LIMIT:g} s"
            raise JobError(f"kubectl port-forward to pod {pod!r} {how}; it said:\n{said}")

    @property
    def address(self) -> str:
        """The address at which the worker is reached."""
        return f"tcp://127.0.0.1:{self._local}"

    def close(self) -> None:
        """End it."""
        self._closed.set()
        with self._lock:
            shell = self._shell
        if shell is not None:
            assert shell.stdin is not None
            shell.stdin.close()
            shell.wait()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._error = None
                self._run_once()
            except Exception as error:  # credentials may be there again a moment later
                self._error = error
            if not self._local or (
                self._error is None and self._said and _GONE.search(self._said[-1])
            ):
                break
            if not self._closed.wait(_AGAIN):
                why = self._error or [*self._said][-1:]
                logger.info(
                    "kubectl port-forward to pod %s has ended: %s; starting it again",
                    self._pod,
                    why,
                )
        forwarded.discard(self.address)
        self._listens.set()

    def _run_once(self) -> None:
        folder, file = "", self._config.path
        try:
            if file is None:  # kubectl reads no other: JSON is YAML
                content = json.dumps(self._config.as_kubeconfig())
                folder = tempfile.mkdtemp(prefix="monarch_forward_")  # for us alone
                file = f"{folder}/kubeconfig"
                Path(file).write_text(content)
            with self._lock:
                if self._closed.is_set():
                    return
                shell = self._shell = self._start(folder, file)
            self._follow(shell)
        finally:
            if folder:  # the shell may have been killed before it could
                shutil.rmtree(folder, ignore_errors=True)

    def _start(self, folder: str, file: str) -> subprocess.Popen[str]:
        command = [
            "kubectl", "--kubeconfig", file, "--namespace", self._namespace, "port-forward",
            "--address", "127.0.0.1",
        ]  # fmt: skip
        return subprocess.Popen(
            [
                "sh",
                "-c",
                _LEASH,
                "sh",
                folder,
                *command,
                f"pod/{self._pod}",
                f"{self._local or ''}:{self._remote}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Ctrl-C is for the program; the shell ends, and cleans up, when that does
            start_new_session=True,
        )

    def _follow(self, shell: subprocess.Popen[str]) -> None:
        assert shell.stdin is not None and shell.stdout is not None
        with shell.stdout:
            for line in shell.stdout:
                if found := _LISTENS.match(line):
                    self._local = int(found[1])
                    forwarded.add(self.address)
                    self._listens.set()
                elif not line.startswith("Handling connection"):
                    self._said.append(line.rstrip())
        if not self._closed.is_set():
            shell.stdin.close()
        shell.wait()
