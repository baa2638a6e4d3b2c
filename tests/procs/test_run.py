"""`monarch run`: scripts that were written for `torchrun`, as they are, under both launchers."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.waiting import is_alive, wait_until

if TYPE_CHECKING:
    from helpers.jobs import Home

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch, which is not installed"
)
LAUNCHERS = pytest.mark.parametrize(
    "launcher",
    [pytest.param("torch.distributed.run", marks=needs_torch), "monarch.tools run"],
    ids=["torchrun", "monarch"],
)

# What differs from run to run, by its nature.
OWN = {"TMPDIR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"}

RECORD = """
    import json, os, sys
    seen = {"environment": dict(os.environ), "argv": sys.argv, "path": sys.path[0], "name": __name__, "cwd": os.getcwd()}
    with open("seen_" + os.environ["RANK"], "w") as file:
        json.dump(seen, file)
"""

FAILS_ONCE = """
    import os, signal, sys, time
    attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
    if attempt == "0" and rank == "1":
        raise ValueError("rank 1 is unwell")
    if attempt == "0":
        time.sleep(600)
    os.write(1, f"done {rank} {attempt}\\n".encode())  # in one piece: under torchrun, ranks share the terminal
"""

TRAIN = """
    import os
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    for step in range(3):
        mine = torch.Generator().manual_seed(10 * step + dist.get_rank())
        inputs = torch.randn(8, 4, generator=mine)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    if dist.get_rank() == 0:
        with open("weights", "w") as file:
            file.write(repr([parameter.tolist() for parameter in model.parameters()]))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # a thread of torch that still runs when the interpreter is taken down may abort the process
"""


MEET = """
    import os
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    met = torch.ones(1)
    dist.all_reduce(met)
    if dist.get_rank() == 0:
        with open("met", "w") as file:
            file.write(str(met.item()))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # as above
"""


def launch(
    home: Home,
    launcher: str,
    source: str,
    *options: str,
    exit_code: int = 0,
    args: tuple[str, ...] = (),
) -> str:
    """What the launcher prints when it runs a script, on stdout and then on stderr."""
    (home.folder / "script.py").write_text(textwrap.dedent(source))
    leaves_files = launcher.startswith("torch") or "import torch" in source
    env = {"TMPDIR": str(home.folder)} if leaves_files else {}
    return home.finish(
        home.popen(["-m", *launcher.split(), *options, "script.py", *args], env), exit_code
    )


def seen(home: Home, rank: int) -> dict[str, object]:
    found: dict[str, object] = json.loads((home.folder / f"seen_{rank}").read_text())
    return found


@needs_torch
def test_a_script_sees_what_torchrun_shows_it(home: Home) -> None:
    options, args = ("--nproc-per-node", "2", "--max-restarts", "2"), ("--lr", "1")
    launch(home, "torch.distributed.run", RECORD, *options, args=args)
    theirs = seen(home, 1)
    launch(home, "monarch.tools run", RECORD, *options, args=args)
    ours = seen(home, 1)
    their_environment, our_environment = theirs.pop("environment"), ours.pop("environment")
    assert isinstance(their_environment, dict) and isinstance(our_environment, dict)
    assert ours == theirs
    assert set(their_environment) - set(our_environment) == set()
    differ = {name for name, value in their_environment.items() if our_environment[name] != value}
    assert differ - OWN == set(), {
        name: (their_environment[name], our_environment[name]) for name in differ - OWN
    }


@LAUNCHERS
def test_all_ranks_start_again_when_one_has_failed(home: Home, launcher: str) -> None:
    said = launch(home, launcher, FAILS_ONCE, "--nproc-per-node", "2", "--max-restarts", "1")
    assert "done 0 1" in said and "done 1 1" in said and "done 0 0" not in said


@LAUNCHERS
def test_a_script_that_fails_for_good_ends_the_run_with_status_1(home: Home, launcher: str) -> None:
    said = launch(home, launcher, FAILS_ONCE, "--nproc-per-node", "2", exit_code=1)
    assert "ValueError: rank 1 is unwell" in said
    wait_until(lambda: not home.processes(), what="the end of all ranks")


@needs_torch
@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_training_has_the_same_result_under_both(home: Home) -> None:
    weights = []
    for launcher in ("torch.distributed.run", "monarch.tools run"):
        launch(home, launcher, TRAIN, "--nproc-per-node", "2")
        weights.append((home.folder / "weights").read_text())
        (home.folder / "weights").unlink()
    assert weights[0] == weights[1]


@needs_torch
@pytest.mark.slow
def test_the_store_outlives_the_script_of_rank_0_and_shows_it_nothing(home: Home) -> None:
    launch(
        home,
        "monarch.tools run",
        """
        import os, sys, time
        before = list(sys.meta_path)
        import torch.distributed as dist
        from datetime import timedelta

        store = dist.TCPStore(
            "localhost", int(os.environ["MASTER_PORT"]), is_master=False, timeout=timedelta(seconds=60), wait_for_workers=False
        )
        if os.environ["RANK"] == "0":
            try:
                os.waitpid(-1, os.WNOHANG)
                children = "children"
            except ChildProcessError:
                children = "no child"
            added = "an importer" if any(type(finder).__module__ == "sitecustomize" for finder in sys.meta_path) else "no importer"
            maps = open(f"/proc/{os.getppid()}/maps").read()
            imported = "a proc with torch" if "libtorch" in maps else "a proc without torch"
            store.set("seen", f"{children}, {added}, {imported}")
            store.set("pid", str(os.getpid()))
        else:
            seen, first = store.get("seen").decode(), int(store.get("pid"))
            while os.path.exists(f"/proc/{first}"):
                time.sleep(0.01)
            store.set("late", "still served")
            with open("seen", "w") as file:
                file.write(f"{seen}, {store.get('late').decode()}")
        """,
        "--nproc-per-node=2",
    )
    seen = (home.folder / "seen").read_text()
    assert seen == "no child, no importer, a proc without torch, still served"


@needs_torch
@pytest.mark.parametrize("options", [(), ("--no-python",)])
def test_a_training_that_the_script_starts_has_a_store_as_well(
    home: Home, options: tuple[str, ...]
) -> None:
    (home.folder / "train.py").write_text(textwrap.dedent(MEET))
    script = home.folder / "script.py"
    if options:
        script.write_text(f"#!/bin/sh\nexec {sys.executable} train.py\n")
        script.chmod(0o700)
    else:
        script.write_text(
            "import subprocess, sys; subprocess.run([sys.executable, 'train.py'], check=True)"
        )
    # torch leaves a folder for temporary files
    home.monarch(
        "run", "--nproc-per-node=2", *options, "./script.py", env={"TMPDIR": str(home.folder)}
    )
    assert (home.folder / "met").read_text() == "2.0"


def test_the_whole_error_of_the_rank_that_failed_first_comes_last(home: Home) -> None:
    said = launch(home, "monarch.tools run", FAILS_ONCE, "--nproc-per-node", "3", exit_code=1)
    report = said[said.index("script.py failed on rank 1 first") :]
    assert "2 other ranks were stopped then" in report
    assert report.rstrip().endswith("ValueError: rank 1 is unwell")
    assert 'script.py", line 5, in <module>' in report


def test_an_error_that_the_script_has_recorded_is_the_one_that_is_shown(home: Home) -> None:
    source = """
        import json, os, sys
        error = {"message": "no", "extraInfo": {"py_callstack": "Traceback (most recent call last):\\nKeyError: 7", "timestamp": "1"}}
        with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
            json.dump({"message": error}, file)
        sys.exit(4)
    """
    said = launch(home, "monarch.tools run", source, exit_code=1)
    assert said.rstrip().endswith("KeyError: 7")
    assert "failed with exit status 4" in said


def signalled(home: Home, number: signal.Signals, ready: list[str], *options: str) -> None:
    """Signal the launcher of `script.py` once these files are there; it ends as of the signal."""
    launcher = home.popen(["-m", "monarch.tools", "run", *options, "script.py"], {})
    try:
        for name in ready:
            wait_until((home.folder / name).exists, what=name)
        launcher.send_signal(number)
        home.finish(launcher, 128 + number)
    finally:
        launcher.kill()
        launcher.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_scripts_which_may_end_in_their_own_way(
    home: Home, number: signal.Signals
) -> None:
    (home.folder / "script.py").write_text(
        "import os, signal, sys, time\n"
        "def save(number, frame):\n"
        "    open('saved_' + os.environ['RANK'], 'w').close()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "open('ready_' + os.environ['RANK'], 'w').close()\n"
        "time.sleep(600)\n"
    )
    signalled(home, number, ["ready_0", "ready_1"], "--nproc-per-node", "2")
    assert all((home.folder / f"saved_{rank}").exists() for rank in range(2))
    wait_until(lambda: not home.processes(), what="the end of all ranks")


def test_a_signal_that_the_user_names_reaches_the_scripts_as_it_is(home: Home) -> None:
    (home.folder / "script.py").write_text(
        "import signal, sys, time\n"
        "def save(number, frame):\n"
        "    open('saved_' + str(number), 'w').close()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGUSR1, save)\n"
        "open('ready', 'w').close()\n"
        "time.sleep(600)\n"
    )
    signalled(home, signal.SIGUSR1, ["ready"], "--signals-to-handle", "SIGUSR1")
    assert (home.folder / f"saved_{int(signal.SIGUSR1)}").exists()


def test_a_module_of_the_folder_is_found_by_the_installed_command(home: Home) -> None:
    package = home.folder / "project"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text("print('module', __package__)\n")
    code = "import sys; sys.path.pop(0); from monarch.tools.__main__ import main; sys.exit(main())"
    said = home.finish(home.popen(["-c", code, "run", "-m", "project.train"], {}), 0)
    assert "module project" in said


def test_a_script_that_ignores_sigterm_is_killed_after_the_time_that_it_has(home: Home) -> None:
    source = """
        import os, signal, sys, time
        if os.environ["RANK"] == "1":
            while not os.path.exists("ready"):
                time.sleep(0.01)
            sys.exit("unwell")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("ready", "w").close()
        time.sleep(600)
    """
    said = launch(
        home,
        "monarch.tools run",
        source,
        "--nproc-per-node",
        "2",
        "--shutdown-timeout",
        "0.2",
        exit_code=1,
    )
    assert "failed on rank 1 first" in said
    wait_until(lambda: not home.processes(), what="the end of all ranks")


def test_ranks_end_with_a_launcher_that_is_killed(home: Home) -> None:
    (home.folder / "script.py").write_text(
        "import os, time\nopen('pid_' + os.environ['RANK'],"
        " 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    launcher = home.popen(["-m", "monarch.tools", "run", "--nproc-per-node", "2", "script.py"], {})
    files = [home.folder / f"pid_{rank}" for rank in range(2)]
    # bound now
    pids = [
        int(wait_until(lambda file=file: file.exists() and file.read_text(), what=str(file)))  # type: ignore[misc]
        for file in files
    ]
    launcher.kill()
    launcher.communicate()
    for pid in pids:
        # bound now
        wait_until(lambda pid=pid: not is_alive(pid), what=f"the end of {pid}")  # type: ignore[misc]
    wait_until(lambda: not home.processes(), what="the end of all")


def test_output_goes_to_files_per_rank_and_not_to_the_terminal(home: Home) -> None:
    source = (
        "import os, sys\nprint('out', os.environ['RANK'])\nprint('err', os.environ['RANK'],"
        " file=sys.stderr)\n"
    )
    options = (
        "--nproc-per-node",
        "2",
        "--log-dir",
        "logs",
        "--rdzv-id",
        "night",
        "--redirects",
        "1",
        "--tee",
        "0:2",
    )
    said = launch(home, "monarch.tools run", source, *options)
    folder = home.folder / "logs" / "night" / "attempt_0"
    assert [(folder / str(rank) / "stdout.log").read_text() for rank in range(2)] == [
        "out 0\n",
        "out 1\n",
    ]
    assert (folder / "0" / "stderr.log").read_text() == "err 0\n"
    assert "out" not in said and "err 0" in said and "err 1" in said


FRUIT = """
    import os
    for word in ("apple", "pear", "plum"):
        os.write(1, f"{word} {os.environ['RANK']}\\n".encode())
"""


@LAUNCHERS
@pytest.mark.parametrize(
    ("template", "head"), [("", "[trainer{}]:"), ("<${rank} ${role_name}> ", "<{} trainer> ")]
)
def test_lines_that_are_kept_begin_alike_and_those_with_a_text_are_kept_together(
    home: Home, monkeypatch: pytest.MonkeyPatch, launcher: str, template: str, head: str
) -> None:
    monkeypatch.setenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", template)
    options = ("--nproc-per-node=2", "--tee=1", "--log-dir=logs", "--role=trainer")
    said = launch(home, launcher, FRUIT, *options, "--duplicate-stdout-filters=le,m,x,,l")

    def lines(*words: str) -> set[str]:
        return {f"{head.format(rank)}{word} {rank}" for rank in range(2) for word in words}

    assert lines("apple", "pear", "plum") <= set(said.splitlines())
    (kept,) = (home.folder / "logs").glob("*/attempt_0/filtered_stdout.log")
    assert set(kept.read_text().splitlines()) == lines("apple", "plum")


def test_a_line_without_an_end_has_a_head_as_well(home: Home) -> None:
    said = launch(home, "monarch.tools run", "print('no end', end='')", "--tee=1", "--log-dir=logs")
    assert "[default0]:no end\n" in said


def test_only_the_ranks_that_are_asked_for_are_shown(home: Home) -> None:
    source = "import os\nprint('rank', os.environ['RANK'], 'speaks')\n"
    said = launch(
        home, "monarch.tools run", source, "--nproc-per-node", "3", "--local-ranks-filter", "0,2"
    )
    assert "rank 0 speaks" in said and "rank 2 speaks" in said and "rank 1 speaks" not in said


def test_each_rank_is_a_session_of_its_own_as_under_torchrun(home: Home) -> None:
    source = "import os\nprint('session', os.getsid(0), os.getppid() == os.getsid(0))\n"
    said = launch(home, "monarch.tools run", source, "--nproc-per-node", "2")
    found = re.findall(r"session (\d+) (\w+)", said)
    assert len({session for session, _ in found}) == 2, said
    assert {leads for _, leads in found} == {"True"}, "that of the proc which runs the script"


def test_modules_and_programs_run_as_well(home: Home) -> None:
    (home.folder / "tool.py").write_text("import sys\nprint('module', __name__, sys.argv[1:])\n")
    assert "module __main__ ['x']" in home.monarch("run", "-m", "tool", "x")
    assert "hello" in home.monarch("run", "--no-python", "echo", "hello")


def test_what_can_not_be_run_is_an_error_in_one_line(home: Home) -> None:
    for arguments, said in (
        (("nowhere.py",), "there is no script 'nowhere.py'"),
        (("-m", "no_such_module"), "there is no module 'no_such_module'"),
        (("--nnodes", "2", "nowhere.py"), "there is no script"),
        (
            ("--nproc-per-node", "x", "a.py"),
            "--nproc-per-node is a number, gpu, cpu or auto, got 'x'",
        ),
    ):
        status = 2 if "got 'x'" in said else 1
        shown = home.monarch("run", *arguments, exit_code=status)
        assert said in shown and len(shown.splitlines()) == 1, shown


def test_a_program_that_can_not_be_started_has_failed_and_the_error_says_why(home: Home) -> None:
    said = home.monarch(
        "run", "--json", "--no-python", "--nproc-per-node", "2", "/no/such/program", exit_code=1
    )
    told = json.loads(said.splitlines()[0])
    assert sorted(told.pop("failed")) in ([0], [1], [0, 1]) and told == {"status": 1, "restarts": 0}
    assert "exit status 127" in said and "No such file or directory: '/no/such/program'" in said
    assert "Traceback" not in said


def test_options_without_effect_are_named(home: Home) -> None:
    (home.folder / "script.py").write_text("print('ran')\n")
    said = home.monarch("run", "--standalone", "--rdzv-backend", "c10d", "script.py")
    assert "--rdzv-backend has no effect" in said and "--standalone" not in said and "ran" in said


def test_a_rank_of_many_sees_its_gpu_alone_as_the_first(home: Home) -> None:
    source = "import os\nprint(*(os.environ[name] for name in ('RANK', 'LOCAL_RANK', 'CUDA_VISIBLE_DEVICES')))\n"
    (home.folder / "script.py").write_text(source)
    ran = ("run", "--virtual-local-rank", "--nproc-per-node", "2")
    said = home.monarch(*ran, "script.py", env={"CUDA_VISIBLE_DEVICES": "4,6"})
    assert "[rank 0] 0 0 4" in said and "[rank 1] 1 0 6" in said
    said = home.monarch(*ran, "script.py", env={"CUDA_VISIBLE_DEVICES": "4"}, exit_code=1)
    assert "local rank 1 has no GPU, as CUDA_VISIBLE_DEVICES is '4'" in said


NEAR_ITS_GPU = """
    import os, sys
    from torch.numa import binding
    from monarch.spmd.numa import main

    cores = {max(os.sched_getaffinity(0))}
    # as if there were two GPUs
    binding._get_validated_logical_cpus_to_bind_to = lambda *, device_index, numa_options: (
        cores if (device_index, numa_options.affinity_mode.value) == (1, "socket") else {}
    )
    show = "import os, sys; print(sorted(os.sched_getaffinity(0)), sys.argv[1:])"
    print(sorted(cores), ["--lr"], flush=True)
    main("socket", "1", sys.executable, "-c", show, "--lr")
"""


@needs_torch
def test_a_program_is_bound_to_the_cores_that_torch_finds(home: Home) -> None:
    wanted, bound = home.run(NEAR_ITS_GPU).splitlines()
    assert bound == wanted


@needs_torch
@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="for machines without a GPU")
def test_cores_near_no_gpu_are_an_error(home: Home) -> None:
    (home.folder / "script.py").write_text("print('begins')\n")
    said = home.monarch("run", "--numa-binding", "node", "script.py", exit_code=1)
    assert "--numa-binding node: torch finds no cores near GPU 0: " in said
    assert "begins" not in said


JOB = "from monarch.job import ProcessJob\njob = ProcessJob({'nodes': 3})\n"


def test_a_script_runs_on_the_hosts_of_a_job(home: Home) -> None:
    (home.folder / "cluster.py").write_text(JOB)
    said = launch(
        home,
        "monarch.tools run",
        RECORD,
        "--job",
        "cluster.job",
        "--nnodes",
        "2",
        "--nproc-per-node",
        "2",
    )
    environment = seen(home, 3)["environment"]
    assert isinstance(environment, dict), said
    names = ("WORLD_SIZE", "GROUP_RANK", "LOCAL_RANK", "GROUP_WORLD_SIZE")
    assert [environment[name] for name in names] == ["4", "1", "1", "2"]
    assert "asks for 4 hosts, and there are 3" in launch(
        home, "monarch.tools run", RECORD, "--job", "cluster.job", "--nnodes", "4", exit_code=1
    )
    home.monarch("kill")
    home.wait_nothing_left()


def test_a_run_goes_on_with_fewer_hosts_when_one_is_lost(home: Home) -> None:
    (home.folder / "cluster.py").write_text(JOB)
    source = """
        import os, time
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            open("ready_" + os.environ["RANK"], "w").write(str(os.getppid()))
            time.sleep(600)
        print("world of", os.environ["WORLD_SIZE"])
    """
    (home.folder / "script.py").write_text(textwrap.dedent(source))
    options = ["--job", "cluster.job", "--nnodes", "2:3", "--max-restarts", "1"]
    launcher = home.popen(["-m", "monarch.tools", "run", *options, "script.py"], {})
    try:
        files = [home.folder / f"ready_{rank}" for rank in range(3)]
        for file in files:
            # bound now
            wait_until(lambda file=file: file.exists() and file.read_text(), what=str(file))  # type: ignore[misc]
        host = _agent_above(int(files[1].read_text()))
        os.kill(host, signal.SIGKILL)
        said = home.finish(launcher, 0)
    finally:
        launcher.kill()
        launcher.wait()
    assert said.count("world of 2") == 2
    home.monarch("kill")
    home.wait_nothing_left()


def _agent_above(pid: int) -> int:
    """The worker, several parents up: the agent of the host, whose title says so."""
    while True:
        title = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"worker_main" in title or b"agent" in title:
            return pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1, sys.argv


HANGS = """
    import os, time
    def is_stuck():
        time.sleep(600)
    def waits_for_it():
        time.sleep(600)
    print("begins", flush=True)
    is_stuck() if os.environ["RANK"] == "1" else waits_for_it()
"""


def test_ranks_that_fall_silent_show_their_stacks_and_so_they_do_on_request(home: Home) -> None:
    script = home.program(HANGS)
    program = home.monarch_started("run", "--nproc-per-node", "2", "--hang-timeout", "1", script)
    assert program.stderr is not None
    said = ""
    while not all(
        text in said for text in ("is_stuck at program.py", "waits_for_it at program.py")
    ):
        line = program.stderr.readline()
        assert line, said
        said += line
    assert "monarch run: stacks of all ranks, no rank has printed or ended for 1 s" in said
    shown = home.monarch("stacks", "-p", str(program.pid), "--mesh", "rank", "--rank", "1")
    assert (
        "is_stuck at program.py" in shown
        and "waits_for_it" not in shown
        and "monarch/spmd" not in shown
    )
    program.send_signal(signal.SIGQUIT)
    assert "stacks of all ranks, before they end, by SIGQUIT" in home.finish(
        program, 128 + signal.SIGQUIT
    )
    home.wait_nothing_left()


def test_a_sitecustomize_of_the_machine_runs_as_under_python(home: Home) -> None:
    (home.folder / "own").mkdir()
    (home.folder / "own" / "sitecustomize.py").write_text(
        "import os\nos.environ['CUSTOM'] = 'it was here'\n"
    )
    script = home.program(
        "import os; print(os.environ['CUSTOM'], os.environ['PYTHONPATH'], 'MONARCH_STACKS' in"
        " os.environ)"
    )
    said = home.monarch("run", script, env={"PYTHONPATH": str(home.folder / "own")})
    assert f"it was here {home.folder / 'own'} False" in said
