"""Two machines that ssh reaches, on this one: each a real sshd that is the first process of a pid
namespace, with a /tmp of its own, so that no socket of one is seen by the other, and all of it goes
with the daemon. `here` is a third one without any of that, and `c` one that a test may start and
kill.

Other runs of the tests have machines of these names too, at the same time: what belongs to this one
is told by its folder, which is in the environment of all that runs there, and of all programs that
use it. Each run listens at an address of its own: a port that is not in use now could be the source
of somebody's connection when `c` is started.

No session there reads ~/.bashrc, as bash does for each command that sshd runs: what the user has in
it takes its time once for each, and what a killed machine leaves of it stays for good. `pyenv init`
waits a minute for a lock whose owner was killed, in every session from then on.

Each wait has an end, and says what was left.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from helpers.fuse import mounted_below
from helpers.leaks import OF_SESSION, describe
from helpers.waiting import is_alive, wait_until
from monarch._commands import run_caught

MACHINES = ("a", "b")
SPARE = "c"
HERE = "here"
BOUND = 30.0  # seconds in which what takes moments has to end
_PORTS = {name: port for port, name in enumerate((*MACHINES, HERE, SPARE), 2201)}

_DAEMON = """
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
PidFile {folder}/{name}.pid
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
# bash reads ~/.bashrc in sessions of sshd where it is no shell of a shell
SetEnv MONARCH_TEST_MACHINE={name} MONARCH_TEST_SSH={folder}/{name} {of_session} SHLVL=1
{more}
"""
_CLIENT = """
Host {name}
    HostName {address}
    Port {port}
    User root
    IdentityFile {folder}/key
    IdentitiesOnly yes
    BatchMode yes
    UserKnownHostsFile {folder}/known_hosts
    HostKeyAlias all
    {more}
"""
_OWN_TMP = """
mount --bind /tmp {folder}/hold && mount -t tmpfs tmpfs /tmp || exit 1
for path in {shown}; do mkdir -p "$path" && mount --bind {folder}/hold/"${{path#/tmp/}}" "$path" || exit 1; done
{more}
exec {daemon}
"""

_SECOND = """
mkdir {folder}/home && mount --bind /root {folder}/home && mount -t tmpfs -o mode=755 tmpfs /root || exit 1
for path in {shown}; do mkdir -p "$path" && mount --bind {folder}/home/"${{path#/root/}}" "$path" || exit 1; done
(cat /etc/passwd; echo second:x:61234:61234::/:/bin/sh) >{folder}/passwd && chmod 644 {folder}/passwd
mount --bind {folder}/passwd /etc/passwd || exit 1
"""


@dataclass
class Ssh:
    """Attributes:
    folder: Where keys and configuration are.
    address: Where the daemons listen.
    daemons: By name.
    """

    folder: Path
    address: str
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def config(self) -> str:
        """The configuration of the client, for ``ssh -F``."""
        return str(self.folder / "config")

    def processes(self, name: str) -> list[int]:
        """All that runs on a machine, beside sshd."""
        mark = f"MONARCH_TEST_SSH={self.folder}/{name}".encode()
        return [pid for pid in _pids() if mark in _read(pid, "environ").split(b"\0")]

    def files(self, name: str) -> list[str]:
        """What a machine has in its folder for temporary files.

        Those of `here` are for all: what others use there is not ours.
        """
        found = sorted(
            entry.name
            for entry in self._tmp(name).iterdir()
            if entry.name.startswith("monarch_ssh_")
        )
        if name == HERE and found:
            commands = b" ".join(_read(pid, "cmdline") for pid in _pids() if not self._is_ours(pid))
            found = [
                file
                for file in found
                if file.partition(".")[0].encode() not in commands
                and (self._tmp(name) / file).exists()
            ]
        return found

    def mounts(self, name: str, folder: Path) -> list[str]:
        """What is mounted in a folder of a machine, as it sees it itself."""
        return mounted_below(folder, self._init(name))

    def left(self) -> list[str]:
        """Processes and files of jobs."""
        found = []
        for name in self.daemons:
            found += [f"{name}: {describe(pid)}" for pid in self.processes(name)]
            found += [f"{name}: /tmp/{file}" for file in self.files(name)]
        return found

    def wait_nothing_left(self) -> None:
        wait_until(
            lambda: not self.left(), what=lambda: f"the end of all on the machines: {self.left()}"
        )

    def end_everything(self) -> None:
        """What a test that failed has left, so that it does not make others fail."""
        for name in self.daemons:
            for pid in self.processes(name):
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            for file in self.files(name):
                shutil.rmtree(self._tmp(name) / file, ignore_errors=True)
        if SPARE in self.daemons:
            self.kill_machine(SPARE)

    def kill_machine(self, name: str) -> None:
        """As if the power had failed: with the first process of its namespace, all others end."""
        self.folder.chmod(0o700)
        if left := self._killed(name):
            raise AssertionError(f"this was left when its machine was killed: {left}")

    def start_machine(self, name: str, second: bool = False) -> None:
        """Start one; with a second user, who sees the interpreter also where it is below /root."""
        self.folder.chmod(0o711 if second else 0o700)  # its sshd reads there who may log in
        daemon = ["/usr/sbin/sshd", "-D", "-e", "-f", str(self.folder / f"{name}.sshd")]
        if name != HERE:
            shown = sorted({sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])})
            of_root = shlex.join(path for path in shown if path.startswith("/root/"))
            script = _OWN_TMP.format(
                folder=self.folder,
                shown=shlex.join(path for path in shown if path.startswith("/tmp/")),
                daemon=shlex.join(daemon),
                more=_SECOND.format(folder=self.folder, shown=of_root) if second else "",
            )
            daemon = [
                "unshare",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount",
                "--mount-proc",
                "sh",
                "-c",
                script,
            ]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *daemon],
                env={**os.environ, **dict([OF_SESSION.split("=")])},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        said = [""]
        wait_until(
            lambda: self._answers(name, said),
            what=lambda: f"the sshd of {name}. ssh: {said[-1]}; sshd: {self._log_of(name)}",
            interval=0.05,
        )

    def start(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        (self.folder / "hold").mkdir()
        for key in ("host_key", "key", "other_key"):
            self._run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key))
        shutil.copy(self.folder / "key.pub", self.folder / "authorized_keys")
        self.trust("host_key")
        clients = {name: (name, "") for name in _PORTS} | {"behind": ("b", "ProxyJump a")}
        text = "".join(
            _CLIENT.format(
                name=name, address=self.address, port=_PORTS[machine], folder=self.folder, more=more
            )
            for name, (machine, more) in clients.items()
        )
        (self.folder / "config").write_text(text)
        for name in _PORTS:
            self.configure(name)
        for name in (*MACHINES, HERE):
            self.start_machine(name)

    def configure(self, name: str, more: str = "") -> None:
        text = _DAEMON.format(
            name=name,
            address=self.address,
            port=_PORTS[name],
            folder=self.folder,
            of_session=OF_SESSION,
            more=more,
        )
        (self.folder / f"{name}.sshd").write_text(text)

    def trust(self, key: str) -> None:
        """Have clients take this for the key of all machines."""
        (self.folder / "known_hosts").write_text("all " + (self.folder / f"{key}.pub").read_text())

    def end(self) -> None:
        """End all machines; an error names what could not be ended."""
        if left := [line for name in list(self.daemons) for line in self._killed(name)]:
            raise AssertionError(f"this was left at the end of the machines: {left}")

    def _killed(self, name: str) -> list[str]:
        """Kill a machine; what does not end in time, as can be where a file system hangs."""
        daemon = self.daemons[name]
        inside = self.processes(name)
        if daemon.poll() is None:
            os.kill(self._init(name), 9)
        try:
            daemon.wait(BOUND)
        except subprocess.TimeoutExpired:
            return [f"{name}: {describe(pid)}" for pid in (daemon.pid, *inside) if is_alive(pid)]
        del self.daemons[name]
        return []

    def _tmp(self, name: str) -> Path:
        return Path(f"/proc/{self._init(name)}/root/tmp")

    def _init(self, name: str) -> int:
        daemon = self.daemons[name].pid
        children = (
            Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
            if name != HERE
            else []
        )
        return int(children[0]) if children else daemon

    def _is_ours(self, pid: int) -> bool:
        """Whether it runs on a machine, or has to do with a program that uses them."""
        return f"{self.folder}/".encode() in _read(pid, "environ")

    def _answers(self, name: str, said: list[str]) -> bool:
        """Whether a command runs there; what ssh says otherwise is put into `said`.

        An sshd that has ended, as where its port is taken, is an error at once.
        """
        command = ["ssh", "-F", self.config, "-n", name, "true"]
        try:
            done = run_caught(command, BOUND)
        except subprocess.TimeoutExpired:
            said.append(f"`ssh {name} true` has not ended within {BOUND:.0f} s")
            return False
        said.append(done.stderr.strip())
        if done.returncode and (status := self.daemons[name].poll()) is not None:
            raise AssertionError(
                f"the sshd of {name} has ended with status {status}: {self._log_of(name)}"
            )
        return done.returncode == 0

    def _log_of(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-1000:]

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, timeout=BOUND)


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


@contextmanager
def running_ssh(network: int = 64) -> Iterator[Ssh]:
    """Machines `a`, `b` and `here`; at the end nothing is left of them, and of what ran there.

    Args:
        network: A number that another one of this process has not got: 64, 128 or 192.
    """
    # /tmp is another one there
    with tempfile.TemporaryDirectory(prefix="ms", dir="/var/tmp") as folder:
        pid = os.getpid()
        ssh = Ssh(Path(folder), f"127.{network + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}")
        try:
            ssh.start()
            yield ssh
        finally:
            ssh.end()


def why_not() -> str:
    """Why there can be no sshd here; empty if there can."""
    missing = [
        name for name in ("ssh", "ssh-keygen", "unshare", "setpriv") if shutil.which(name) is None
    ]
    if missing or not os.path.exists("/usr/sbin/sshd"):
        return f"{', '.join([*missing, 'sshd'])} not installed: apt-get install openssh-server"
    if os.geteuid() != 0:
        return "machines of their own need root"
    probe = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "true"],
        capture_output=True,
        text=True,
        timeout=BOUND,
    )
    return f"no namespaces: {probe.stderr.strip()}" if probe.returncode else ""
