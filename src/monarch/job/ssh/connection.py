"""Connections to other machines by ssh, with the user's configuration, keys and jump hosts.

One ssh for each machine, its *master*, carries everything: the forwarded sockets, and a session for
each worker. Its own session keeps a folder there (`text.keeper`). What holds all of it is
stdin, a pipe of this program: when that closes, because the program closes it or has ended in
any way, the sessions there end, then ssh.

What ends each wait: an answer; the end of ssh, also as the network is gone for `_SILENCE` seconds;
the time limit.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ..._commands import run_caught
from ..._ours import APPEND, look, opened
from ...errors import JobError
from ..base.waiting import Waiting
from . import text as ssh_text

# connections being made: a jump host refuses more than ten that have not proved who they are
AT_ONCE = 8
# seconds after which ssh asks whether the other side is there, and how many times without an answer
_SILENCE = 5, 3
_LOOK = 0.5  # seconds until people are told again
_END = 5.0  # seconds in which ssh has to end
_CONFIGURED = 30.0  # seconds in which it has to say what its configuration is
_TAIL = 16 * 1024

T = TypeVar("T")


class SshCommand:
    """An ssh that runs a command there.

    Args:
        host: As ssh takes it.
        command: The ssh.
        log: Its stderr is appended to this file.
        env: Variables for it here.
        what: What of the host it is, for people.
    """

    def __init__(
        self, host: str, command: Sequence[str], log: Path, env: Mapping[str, str], what: str = ""
    ) -> None:
        self.host = host
        self.log = log
        self.name = f"{host!r}{what and ', '}{what}"
        self._heard = b""
        with opened(log.parent) as folder, open(folder.open(log.name, APPEND), "ab") as file:
            # the file is appended to: lines of an earlier ssh must not count as said by this one
            self._begin = file.tell()
            try:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    env=env,
                    start_new_session=True,  # Ctrl-C is for this program
                    bufsize=0,
                )
            except FileNotFoundError:
                raise JobError(f"there is no {command[0]} on the PATH of this machine") from None

    def write(self, data: bytes) -> None:
        """Write to the command; ignored if the command has exited."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(data)

    def read(self) -> list[str] | None:
        """The next whole lines, once there is something to read; None at the end."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 65536)
        *lines, self._heard = (self._heard + data).split(b"\n")
        return [line.decode(errors="replace") for line in lines] if data else None

    def said(self) -> str:
        """The end of what it said on stderr, since it was started."""
        with open(look(self.log), "rb") as file:
            file.seek(max(self._begin, file.seek(0, os.SEEK_END) - _TAIL))
            return file.read().decode(errors="replace")

    def hang_up(self) -> None:
        """Close stdin; what runs there ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self, seconds: float) -> int:
        """Let go of it: the exit status, once it has ended; it is killed after some seconds."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            status = self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = -signal.SIGKILL
            with suppress(subprocess.TimeoutExpired):  # one that the kernel does not end is left
                self.process.wait(_END)
        self.process.stdout.close()
        return status


class SshConnection:
    """One machine. Made by `start`, or by another program that shares its master connection.

    Args:
        host: As ssh takes it.
        control: The socket of the master.
        env: Variables of the processes here.
    """

    def __init__(self, host: str, control: str, env: Mapping[str, str]) -> None:
        self.host = host
        self._control = control
        self._env = env

    def start(self, ssh_args: Sequence[str], script: str, log: Path, patience: float) -> SshCommand:
        """Start the master connection, with a script there; the caller waits for its first line."""
        ours = {
            "BatchMode": "yes",  # several at once can't ask, and there may be no user
            "ClearAllForwardings": "yes",  # those of the configuration; they may be taken
            "ControlPersist": "no",
            "RemoteCommand": "none",
            "ConnectTimeout": f"{max(1.0, patience):.0f}",
            "ServerAliveInterval": str(_SILENCE[0]),
            "ServerAliveCountMax": str(_SILENCE[1]),
        }
        options = [f"-o{name}={value}" for name, value in ours.items()]
        # what the user gives comes first: ssh takes the first value of each option
        command = [
            "ssh", *ssh_args, *options, "-T", "-M", "-S", self._control, "--", self.host,
            ssh_text.in_sh(script),
        ]  # fmt: skip
        return SshCommand(self.host, command, log, self._env)

    @property
    def lives(self) -> bool:
        """True if the master answers."""
        return self._ask("-O", "check", self.host).returncode == 0

    def session(self, what: str, command: str, log: Path) -> SshCommand:
        """Run a command there."""
        return SshCommand(self.host, self._command(self.host, command), log, self._env, what)

    def run(self, script: str, limit: float) -> str:
        """Run a script there, and return its output.

        Raises:
            JobError: It has failed, or needs too long.
        """
        done = self._ask(self.host, ssh_text.in_sh(script), limit=limit)
        if done.returncode:
            raise JobError(
                f"host {self.host!r}: {ssh_text.why(done.stderr, self.host, 'the interpreter')}"
            )
        return done.stdout

    def living(self, pids: Collection[int], job: str, limit: float, may_be_gone: bool) -> set[int]:
        """The processes of a job on a machine that are among `pids` and alive.

        None are reported on a machine that is gone, if that is allowed.

        Raises:
            JobError: As `run`.
        """
        if not pids:
            return set()
        try:
            # its login shell may greet, also with numbers
            said = self.run(ssh_text.living(pids, job), limit).split()
            return {pid for pid in pids if str(pid) in said}
        except JobError:
            if may_be_gone and not self.lives:
                return set()
            raise

    def forward(self, here: Iterable[tuple[str, str]], there: Iterable[tuple[str, str]]) -> None:
        """Forward sockets.

        Args:
            here: Paths here, and those there that they lead to.
            there: Paths there, and those here that they lead to.

        Raises:
            JobError: The other side refuses it.
        """
        wanted = [("-L", f"{own}:{other}") for own, other in here] + [
            ("-R", f"{other}:{own}") for other, own in there
        ]
        if not wanted:
            return
        done = self._ask("-O", "forward", *(word for pair in wanted for word in pair), self.host)
        if done.returncode:
            raise JobError(
                f"host {self.host!r}: its sshd forwards no Unix sockets (AllowStreamLocalForwarding"
                " and AllowTcpForwarding in "
                f'sshd_config): {ssh_text.why(done.stderr, self.host, "")}. transport="tcp" does'
                " without"
            )

    def _command(self, *arguments: str) -> list[str]:
        # without the master it must fail, rather than make a connection of its own
        return [
            "ssh", "-F", "none", "-oProxyCommand=false", "-oControlMaster=no", "-T", "-S",
            self._control, *arguments,
        ]  # fmt: skip

    def _ask(self, *arguments: str, limit: float = 60.0) -> subprocess.CompletedProcess[str]:
        try:
            command = self._command(*arguments)
            return run_caught(command, limit, env=self._env, start_new_session=True)
        except subprocess.TimeoutExpired:
            raise JobError(f"host {self.host!r} did not answer within {limit:g} s") from None


def hostname_of(host: str, ssh_args: Sequence[str]) -> str:
    """The name or address by which ssh reaches a host, as its configuration says."""
    command = ["ssh", *ssh_args, "-G", "--", host]
    try:  # the configuration may run programs (`Match exec`)
        done = run_caught(command, _CONFIGURED)
    except subprocess.TimeoutExpired:
        raise JobError(
            f"host {host!r}: `ssh -G {host}`, which says what its configuration is, has not ended"
            f" within {_CONFIGURED:g} s"
        ) from None
    found = re.search(r"^hostname (\S+)$", done.stdout, re.MULTILINE)
    if found is None:
        raise JobError(f"host {host!r}: {ssh_text.why(done.stderr, host, '')}")
    return found[1]


def hear(
    sessions: Sequence[SshCommand],
    find: Callable[[str], T | None],
    python: str,
    end: float,
    waiting: Waiting,
    what: str,
) -> list[T]:
    """Wait until each session has said something.

    Args:
        sessions: All of them.
        find: What a line means; None if nothing.
        python: The interpreter, for messages.
        end: When to give up, by the monotonic clock.
        waiting: Tells people.
        what: What it is that they have, once they have spoken: "workers run".

    Returns:
        What each has said, in their order.

    Raises:
        JobError: One has ended instead, or the time is over.
    """
    heard: dict[SshCommand, T] = {}
    poll = select.poll()
    silent = {
        session.process.stdout.fileno(): session
        for session in sessions
        if session.process.stdout is not None
    }
    for fd in silent:
        poll.register(fd, select.POLLIN)
    look = time.monotonic()
    while silent:
        # not for each that speaks: of a thousand, there is much to read
        if time.monotonic() >= look:
            look = time.monotonic() + _LOOK
            waiting.show(
                f"{len(heard)} of {len(sessions)} {what}; waiting for"
                f" {', '.join(s.name for s in silent.values())}",
                [(session.name, ssh_text.last_line(session.said())) for session in silent.values()],
            )
        if time.monotonic() > end:
            slow = next(iter(silent.values()))
            raise JobError(
                f"{len(silent)} of {len(sessions)} did not come up in time (start_timeout), among"
                f" them host {slow.name}: {ssh_text.why(slow.said(), slow.host, python)} (its"
                f" output: {slow.log})"
            )
        for fd, _ in poll.poll(_LOOK * 1000):
            session = silent[fd]
            lines = session.read()
            if lines is None:
                status = session.wait(_END)
                reason = ssh_text.why(
                    session.said(), session.host, python, f"it ended with status {status}"
                )
                raise JobError(f"host {session.name}: {reason} (its output: {session.log})")
            for line in lines:
                meaning = find(line)
                if meaning is not None:
                    heard[session] = meaning
                    poll.unregister(fd)
                    del silent[fd]
                    break
    return [heard[session] for session in sessions]
