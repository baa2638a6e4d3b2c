"""The text around `SSHJob`: lists of hosts, scripts of sh, error messages of ssh. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..base.contract import IDLE_LIMIT, worker_command
from ..base.processes import TAG
from ..base.worker_spec import WorkerSpec

HERE, ELSEWHERE = "monarch: here", "monarch: elsewhere"
"""What `keeper` says: whether the folder is there already, of this user, and then his number."""

OTHERS = "another user of this machine has made the folder that this job needs there, not this one:"
"""The error of `keeper` where it has not made the folder itself, and its path."""

LIFELINE, REPORT = 0, 3
"""Descriptors of a worker.

Its stdout is not the report: what others print there would come before it.
"""

# what ssh, its ProxyCommand, or a shell on the way would take for something else
_NO_HOST = re.compile(r"""[\s\x00-\x1f\x7f'"`$;&<>|(){}]|(?:^|@|/)-""")
_NOISE = re.compile(
    r"^(@+$|Warning: |\*\* |debug\d: |mux_client|Connection closed by|Connection to .*"
    r" closed|kex_exchange_identification|"
    r"Shared connection|Control socket connect)"
)
_HINTS = {
    "Could not resolve hostname": "no such name here, nor as a `Host` in ~/.ssh/config",
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "its host key has changed. If you know why: `ssh-keygen -R {host}`",
    "Host key verification failed": "its host key is not known yet: run `ssh {host}` once, and accept it",
    r"Permission denied \(": "no key was accepted, and passwords are not asked for: does `ssh -o BatchMode=yes {host}` work?",
    r"No module named '?monarch\b": "install the same release of pymonarch for {python} there, or name another python_exe",
    "(not found|No such file or directory|Permission denied)$": "is {python} its interpreter? python_exe names another",
    "^it said nothing$": "does `ssh {host} true` end soon, with what ~/.bashrc does there?",
    "refused|timed out|No route to host|unreachable": "is it up, and does `ssh {host}` work from here?",
}


class Start(NamedTuple):
    """How a worker is started.

    Attributes:
        job: The id of the job, by which its processes are found.
        kept: How the name of the folder begins that its connection keeps there: without it, the job
            has been ended before.
        folder: Of its socket, for it alone: made and removed by the script.
        python: The interpreter.
        setup: Lines of sh to run before.
        idle_limit: In seconds; 0 is none.
        detached: Whether it may outlive the connection: then what it prints is kept there.
        secret: Whether a line with a secret comes before the lifeline.
    """

    job: str
    kept: str
    folder: str
    python: str
    setup: Sequence[str]
    idle_limit: float
    detached: bool
    secret: bool


def folder_of(workers: str, number: int) -> str:
    """The folder of a worker there.

    None is shared: a worker that ends would remove it while another starts.
    """
    return f"{workers}.{number}"


def of_user(folder: str, user: int | str = "$(id -u)") -> str:
    """The folder of one user: a job may have hosts of several on one machine.

    Args:
        folder: How its name begins, the same for all of them.
        user: A number; by default that of the user who runs the script. ``%U`` in an address.
    """
    return f"{folder}.{user}"


def socket_in(folder: str) -> str:
    """The socket at which a worker listens."""
    return f"{folder}/socket"


def keeper(folder: str, workers: str = "", at_end: str = "true") -> str:
    """A script that keeps a folder for as long as its stdin is open, unless it is there already.

    One that another user has made, or where a link leads, is not used: that user would get the
    connections. `find` looks once, and follows no link; others can't move our folders in /tmp.

    Args:
        folder: How its name begins; the user's number follows.
        workers: As `folder_of`: the empty folders of workers that have failed go after it.
        at_end: What to do when stdin closes, before the folder goes.
    """
    empty = f"; rmdir {workers}.* 2>/dev/null || :" if workers else ""
    return (
        f"umask 077; u=$(id -u); f={of_user(folder, '$u')}; if mkdir $f 2>/dev/null; then echo;"
        f" echo {ELSEWHERE} $u; cat >/dev/null; {at_end}; rm -rf $f{empty};"
        ' elif [ "$(find $f -prune -type d -user $u -perm 700 2>/dev/null)" ]; then echo;'
        f" echo {HERE} $u; cat >/dev/null; elif [ -e $f ] || [ -L $f ]; then"
        f" echo {OTHERS} $f >&2; exit 1; else mkdir $f; fi"
    )


def hang_up(folder: str) -> str:
    """A script that ends the masters which have their sockets in a folder of the user.

    Else they would wait for workers that are detached.
    """
    ask = "timeout 5 ssh -F none -S $s -O exit any 2>/dev/null"  # one may stand still
    return f"for s in {of_user(folder)}/*.ssh; do {ask}; done"


def worker(start: Start, spec: WorkerSpec) -> str:
    """A command that runs a worker until it ends, or stdin does, and then removes what it made.

    Where a worker has failed, its folder stays, empty, as long as a program may still connect: in
    /tmp, another user could make it again, with a socket of his own. It goes with the connection
    (`keeper`). That of a detached worker goes with it: the job may not come to this host again.
    """
    log = f"{start.folder}/{spec.mesh}_{spec.rank}.log"
    if start.detached:
        clean = [f"[ $s = 0 ] || tail -n 20 {shlex.quote(log)} >&4", f"rm -rf {start.folder}"]
    else:
        may_connect = f"[ $s != 0 ] && [ -d {of_user(start.kept)} ]"
        clean = [f"rm -rf {start.folder}/*; {may_connect} || rmdir {start.folder}"]
    lines = [
        # else it would not come to clean up; children get them back
        "umask 077; trap '' PIPE; trap : HUP INT TERM",
        f"[ -d {of_user(start.kept)} ] && mkdir {start.folder} || exit 1",
        "exec 5<&0 </dev/null 3>&1 4>&2 1>&2",
        f"trap {shlex.quote('s=$?; ' + '; '.join(clean) + '; exit $s')} EXIT",
        *(["read -r MONARCH_SECRET <&5; export MONARCH_SECRET"] if start.secret else []),
        *([f"exec >>{shlex.quote(log)} 2>&1"] if start.detached else []),
        f"export {IDLE_LIMIT}={start.idle_limit:f}s",
        *(["set -e", *start.setup, "set +e"] if start.setup else []),
        f"{run_python(start.python, worker_command(spec, []))} <&5 4>&- 5<&-",
    ]
    # its sh is one of the processes of the job, too: it may be in the middle of `setup` when
    # `ending` comes
    return in_sh("\n".join(lines), f"env {TAG}={start.job} ")


def run_python(python: str, arguments: Iterable[str]) -> str:
    """A command of sh. A leading ``~/`` of the interpreter is the home directory there."""
    home = python.startswith("~/")
    return f"{'~/' if home else ''}{shlex.quote(python[2 * home :])} {shlex.join(arguments)}"


def in_sh(script: str, before: str = "") -> str:
    """Return a command that runs a script by sh, under any login shell of the user.

    `before` are words that come before sh.
    """
    return f"exec {before}sh -c {shlex.quote(script)}"


def living(pids: Iterable[int], job: str) -> str:
    """A script that says which of some processes live, and belong to the job."""
    return (
        f"for p in {' '.join(map(str, pids))}; do grep -qzx {TAG}={job} /proc/$p/environ"
        " 2>/dev/null && echo $p; done; true"
    )


def killing(pids: Iterable[int], job: str) -> str:
    """A script that kills those of some processes that belong to the job, and live."""
    return f"kill -9 $({living(pids, job)}) 2>/dev/null; true"


def ending(job: str, kept: str, workers: str, grace: float, bound: float) -> str:
    """A script that ends all processes of a job: SIGTERM, then SIGKILL.

    It fails if some are left, and names them.

    Args:
        job: Its id.
        kept: As `Start.kept`. It goes first: a worker that has seen it is found here, and one that
            comes later does not start.
        workers: As `folder_of`. The folders go last, should a worker's script have got SIGKILL.
        grace: Seconds from SIGTERM to SIGKILL.
        bound: Seconds in which the kernel must have ended what got SIGKILL.
    """
    found = (
        f"grep -lzx {TAG}={job} /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\\n' | tr '\\n' ' '"
    )
    return "\n".join(
        [
            f"rm -rf {of_user(kept)}; trap 'rm -rf {workers}.* 2>/dev/null' EXIT",
            f"found() {{ {found}; }}",
            'signal() { p=$(found); [ -z "$p" ] || kill -$1 $p 2>/dev/null; }',
            (
                'gone() { i=0; while [ -n "$(found)" ]; do [ $i -lt $1 ] || return 1; sleep 0.05;'
                " i=$((i+1)); done; }"
            ),
            f"signal TERM; gone {grace * 20:.0f} && exit 0",
            f"signal KILL; gone {bound * 20:.0f} && exit 0",
            'echo "processes $(found)of a job do not end" >&2; exit 1',
        ]
    )


def why(said: str, host: str, python: str, otherwise: str = "it said nothing") -> str:
    """Return the cause in one line: the last line of output that is no noise, and a hint."""
    lines = [line.strip() for line in said.splitlines()]
    words = [line for line in lines if line and not _NOISE.match(line)]
    last = words[-1] if words else next(filter(None, reversed(lines)), otherwise)
    for pattern, hint in _HINTS.items():
        if re.search(pattern, said if "CHANGED" in pattern else last):
            return f"{last} ({hint.format(host=host, python=python)})"
    return last


def last_line(said: str) -> str:
    """The last words, for a table."""
    return (said.strip().splitlines() or ["nothing heard yet"])[-1]


def parse_hostfile(text: str) -> tuple[list[str], list[str]]:
    """The hosts of a hostfile, one on a line, as MPI and DeepSpeed have it.

    Other words on a line have no meaning here.

    Lines may have comments from ``#`` on.
    """
    hosts, others = [], []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            hosts.append(words[0])
            others += words[1:]
    return hosts, others


def check_hosts(mesh: str, hosts: Sequence[str]) -> list[str]:
    """Check the hosts of a mesh.

    Raises:
        TypeError: They are no list of strings.
        ValueError: There is none, or one that ssh would take for something else.
    """
    if isinstance(hosts, (str, Mapping)) or not all(isinstance(host, str) for host in hosts):
        raise TypeError(
            f'mesh {mesh!r}: hosts are a list of strings, such as ["node7", "me@node8"]; got'
            f" {hosts!r}"
        )
    if not hosts:
        raise ValueError(f"mesh {mesh!r}: a mesh needs at least one host, got none")
    for host in hosts:
        if not host or _NO_HOST.search(host):
            raise ValueError(
                f"mesh {mesh!r}: {host!r} is no host: wanted what ssh takes, a name, user@name, or"
                " ssh://name:port"
            )
    return list(hosts)
