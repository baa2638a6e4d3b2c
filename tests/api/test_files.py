"""Who reaches files by a path: `_ours`, and modules that have a reason.

What Monarch keeps where other users may put things, too, goes through `monarch._ours`. A module
that opens, lists, makes or removes files in another way is named here, with the reason for which
no other user can lead it elsewhere.
"""

from __future__ import annotations

import ast
import re

import pytest

from api.test_layering import SOURCE, SOURCES, nodes_of

FUNCTIONS = {
    "os": {
        "open", "unlink", "remove", "rmdir", "mkdir", "makedirs", "listdir", "scandir", "walk", "replace", "rename", "renames",
        "symlink", "link", "chmod", "chown", "truncate", "removedirs", "utime",
    },
    "shutil": {"rmtree", "copyfile", "copy", "copy2", "copytree", "move"},
    "tempfile": {"mkdtemp", "mkstemp", "mktemp", "TemporaryDirectory", "NamedTemporaryFile"},
    "io": {"open", "open_code", "FileIO"},
    "tarfile": {"open"},
    "zipfile": {"ZipFile"},
    "duckdb": {"connect"},
    "logging": {"FileHandler"},
    "_ours": set(),
}  # fmt: skip
METHODS = {
    "mkdir", "unlink", "glob", "rglob", "iterdir", "write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "rmdir",
    "read_text", "read_bytes", "chmod", "rename",
}  # fmt: skip


KERNEL = ("/proc/", "/sys/", "/dev/", ":memory:")
MODE = re.compile(r"[rwax][bt]?\+?")

REASONS = {
    "it is `_ours`": ["_ours.py"],
    "it renames dimensions of a mesh, and no file": ["gpu_checks/checks.py"],
    "it reads what the kernel shows": [
        "_guards/surroundings.py", "_title.py", "mounts/table.py", "rdma/paths/process_vm.py",
        "stacks/dump.py", "telemetry/gpus.py", "_resources.py",
        "job/base/processes.py", "rdma/availability.py",
    ],
    "it reads files of the package": [
        "admin/openapi.py", "admin/past.py", "admin/schemas.py", "config/_table.py", "dashboard/__init__.py",
        "debugger/commands.py", "debugger/dap.py", "tools/demo.py", "jupyter/rank_map.py", "telemetry/tables.py",
        "tensor_engine/planning/settings.py", "tools/cli.py",
    ],
    "the user has named the path, for this": [
        "_core/net/trust.py", "elastic/checkpoint.py", "environments/requirements.py", "job/commands.py", "job/hosts.py",
        "job/kubernetes/config.py", "job/slurm/job.py", "job/ssh/job.py", "memory.py",
        "mounts/daemon.py", "mounts/folder.py", "profiler.py", "simulator/graph.py",
        "simulator/history.py", "simulator/ir.py", "simulator/machine.py", "simulator/simulator.py", "sync/push.py",
        "sync/reload.py", "telemetry/profile.py", "tools/exec.py", "tools/query.py", "trust.py",
    ],
    "it is in the home of the user": ["_secret.py", "tools/redact.py"],
    "the workspace is read": ["sync/scan.py"],
    "it is a fresh folder of `tempfile`, which no other user can enter": [
        "admin/child.py", "admin/more.py", "job/kubernetes/forward.py", "job/process.py", "job/spmd.py", "stacks/py_spy.py",
        "telemetry/torch_events.py", "tensor_engine/tensors/mesh_groups.py",
    ],
    "it is a fresh name of random bytes": ["job/ssh/reach.py", "spmd/rank.py"],
    "it is below a folder that `own_folder` has checked, on a place where none can be moved": [
        "environments/enter.py", "environments/prefix.py", "environments/venv.py", "sync/build.py", "sync/removal.py", "sync/store.py",
    ],
    "sockets, and their folders in `/tmp`, which are looked at by `is_private`": [
        "_core/net/listener.py", "_core/net/sockets.py", "_core/net/unix.py",
    ],
    "it looks for names, and opens what it finds by `look`; or asks for times alone": ["job/find_logs.py", "logs/reader.py"],
    "it finds files, which it opens by `_ours`, or after a look at their owner": [
        "admin/runs.py", "telemetry/run_file.py", "tools/report.py",
    ],
    "it makes a new file (`O_EXCL`) or opens the null device": [
        "_core/processes/agent_main.py", "_core/processes/spawner.py", "tools/logs.py",
    ],
}  # fmt: skip


def is_allowed(path: ast.expr | None) -> bool:
    """Whether what is opened was opened before, or is the kernel's."""
    text = path.values[0] if isinstance(path, ast.JoinedStr) else path
    return (
        (isinstance(path, ast.Call) and ast.unparse(path.func).endswith((".open", ".dup", "look")))
        or (isinstance(path, ast.Name) and path.id in ("fd", "number"))
        or (isinstance(text, ast.Constant) and str(text.value).startswith(KERNEL))
    )


def is_by_path(call: ast.Call) -> bool:
    """Whether a call reaches a file, or a folder, by its path."""
    called, first = call.func, call.args[0] if call.args else None
    if isinstance(called, ast.Name):
        return called.id == "open" and not is_allowed(first)
    if not isinstance(called, ast.Attribute):
        return False
    if any(word.arg and word.arg.endswith("dir_fd") for word in call.keywords):
        return False
    owner = called.value.id if isinstance(called.value, ast.Name) else ""
    if owner in FUNCTIONS:
        return called.attr in FUNCTIONS[owner] and not is_allowed(first)
    if called.attr == "open":
        return isinstance(first, ast.Constant) and bool(MODE.fullmatch(str(first.value)))
    of_a_path = (
        called.value.args[0] if isinstance(called.value, ast.Call) and called.value.args else None
    )
    return called.attr in METHODS and not (of_a_path and is_allowed(of_a_path))


def by_path() -> dict[str, list[int]]:
    """The modules with such calls, and the lines."""
    found = {
        str(path.relative_to(SOURCE)): [
            node.lineno for node in nodes_of(path) if isinstance(node, ast.Call) and is_by_path(node)
        ]
        for path in SOURCES
    }  # fmt: skip
    return {name: lines for name, lines in found.items() if lines}


def test_files_are_reached_by_their_paths_only_where_there_is_a_reason() -> None:
    found, known = by_path(), {name for names in REASONS.values() for name in names}
    new = {name: lines for name, lines in found.items() if name not in known}
    assert new == {}, "take `_ours` for these, or say in REASONS why another user can't lead them"
    assert known - found.keys() == set(), "these need no reason any more"


@pytest.mark.parametrize(
    ("code", "by_path"),
    [
        ("open('.monarch/launch.json', 'w')", True),
        ("os.open(path, os.O_WRONLY)", True),
        ("(folder / name).write_text(text)", True),
        ("shutil.rmtree(folder)", True),
        ("path.open('rb')", True),
        ("io.FileIO(path)", True),
        ("duckdb.connect(path)", True),
        ("os.unlink(name, dir_fd=fd)", False),
        ("_ours.touch(path)", False),
        ("open(look(path), 'rb')", False),
        ("open(folder.open(name), 'rb')", False),
        ("open(f'/proc/{pid}/status')", False),
        ("folder.replace(name, content)", False),
    ],
)
def test_a_call_that_reaches_a_file_by_its_path_is_found(code: str, by_path: bool) -> None:
    (statement,) = ast.parse(code).body
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    assert is_by_path(statement.value) == by_path
