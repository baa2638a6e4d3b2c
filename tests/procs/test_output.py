"""What procs print and log, as it reaches the terminal of the client."""

from __future__ import annotations

import re

from helpers.scripts import run_script


def test_lines_of_several_procs_arrive_whole_with_mesh_and_rank_in_front() -> None:
    result = run_script("""
        from monarch.actor import Actor, current_rank, endpoint, this_host

        class Prints(Actor):
            @endpoint
            def print_lines(self, count):
                rank = current_rank().rank
                for i in range(count):
                    print(f"<rank {rank} line {i} " + str(rank) * 300 + ">")

        procs = this_host().spawn_procs(per_host={"gpus": 4}, name="workers")
        procs.spawn("prints", Prints).print_lines.call(200).get()
        """)
    assert result.exit_code == 0, str(result)
    lines = [line for line in result.stdout.splitlines() if "<rank" in line]
    assert len(lines) == 800
    seen: dict[int, list[int]] = {rank: [] for rank in range(4)}
    for line in lines:
        match = re.fullmatch(r"(.*?)<rank (\d) line (\d+) (\d+)>", line)
        assert match is not None, f"torn: {line[:200]!r}"
        prefix, rank, number, filler = match.groups()
        assert filler == rank * 300, f"torn: {line[:200]!r}"
        assert "workers" in prefix
        assert rank in prefix
        seen[int(rank)].append(int(number))
    assert all(numbers == list(range(200)) for numbers in seen.values())


def test_lines_of_a_single_proc_have_no_prefix() -> None:
    result = run_script("""
        from monarch.actor import Actor, endpoint, this_host

        class Prints(Actor):
            @endpoint
            def print_it(self):
                print("just this")

        this_host().spawn_procs().spawn("prints", Prints).print_it.call_one().get()
        """)
    assert result.stdout == "just this\n", str(result)


def test_stderr_of_procs_goes_to_stderr() -> None:
    result = run_script("""
        import sys
        from monarch.actor import Actor, endpoint, this_host

        class Prints(Actor):
            @endpoint
            def print_it(self):
                print("to stderr", file=sys.stderr)

        this_host().spawn_procs(per_host={"gpus": 2}).spawn("prints", Prints).print_it.call().get()
        """)
    assert result.stderr.count("to stderr") == 2, str(result)
    assert result.stdout == ""


def test_what_was_printed_before_the_end_is_not_lost() -> None:
    result = run_script("""
        import atexit, os
        from monarch.actor import Actor, endpoint, this_host

        class Prints(Actor):
            def __init__(self):
                atexit.register(lambda: print("at exit"))

            @endpoint
            def print_it(self):
                print("no newline", end="")

            def __cleanup__(self, exc):
                print("\\nin cleanup")

        procs = this_host().spawn_procs(per_host={"gpus": 2})
        procs.spawn("prints", Prints).print_it.call().get()
        procs.stop().get()
        """)
    assert result.exit_code == 0, str(result)
    for text in ("no newline", "in cleanup", "at exit"):
        assert result.stdout.count(text) == 2, str(result)


def test_output_of_child_processes_of_actors_arrives_too() -> None:
    result = run_script("""
        import subprocess
        from monarch.actor import Actor, endpoint, this_host

        class Prints(Actor):
            @endpoint
            def run(self):
                subprocess.run(["echo", "from a subprocess"], check=True)

        this_host().spawn_procs(per_host={"gpus": 2}).spawn("prints", Prints).run.call().get()
        """)
    assert result.stdout.count("from a subprocess") == 2, str(result)


def test_a_client_that_captures_its_output_in_a_pipe_gets_it_before_it_ends() -> None:
    result = run_script("""
        from monarch.actor import Actor, endpoint, this_host

        class Prints(Actor):
            @endpoint
            def print_it(self, i):
                print("remote", i)

        worker = this_host().spawn_procs().spawn("prints", Prints)
        for i in range(50):
            worker.print_it.call_one(i).get()
        """)
    assert [line for line in result.stdout.splitlines() if line.startswith("remote")] == [
        f"remote {i}" for i in range(50)
    ]


def test_logging_records_carry_the_actor() -> None:
    result = run_script("""
        import logging
        from monarch.actor import Actor, endpoint, this_host

        class Logs(Actor):
            @endpoint
            def log(self):
                logging.getLogger("some.library").warning("a warning from a library")
                self.logger.warning("a warning of the actor")

        this_host().spawn_procs(per_host={"gpus": 2}).spawn("my_logs", Logs).log.call().get()
        """)
    for text in ("a warning from a library", "a warning of the actor"):
        lines = [line for line in result.stderr.splitlines() if text in line]
        assert len(lines) == 2, str(result)
        assert all("actor=" in line and "my_logs" in line for line in lines), str(result)


def test_logging_records_carry_the_actor_in_a_format_of_the_users_own() -> None:
    result = run_script("""
        import logging
        from monarch.actor import Actor, endpoint, this_host

        class Logs(Actor):
            def __init__(self):
                logging.basicConfig(format="MINE %(levelname)s %(message)s", level=logging.INFO)

            @endpoint
            def log(self):
                logging.info("formatted %d", 7)
                logging.info("")

        this_host().spawn_procs().spawn("my_logs", Logs).log.call_one().get()
        """)
    (line,) = [line for line in result.stderr.splitlines() if "formatted" in line]
    assert re.search(r"MINE INFO \[actor=.*my_logs.*\] formatted 7", line), str(result)
    assert "MINE INFO \n" in result.stderr, "an empty message is left alone: " + str(result)


def test_the_prefix_of_logging_records_can_be_turned_off() -> None:
    result = run_script("""
        import logging
        from monarch.actor import Actor, endpoint, this_host

        class Logs(Actor):
            @endpoint
            def log(self):
                import monarch.actor
                monarch.actor.config.prefix_python_logs_with_actor = False
                logging.warning("plain warning")

        this_host().spawn_procs().spawn("my_logs", Logs).log.call_one().get()
        """)
    (line,) = [line for line in result.stderr.splitlines() if "plain warning" in line]
    assert "actor=" not in line


def test_records_of_the_client_say_that_they_are_of_the_root_once_there_are_procs() -> None:
    result = run_script("""
        import logging, threading
        import monarch.actor
        from monarch.actor import Actor, endpoint, this_host, this_proc

        class Logs(Actor):
            @endpoint
            def log(self):
                log.warning("%s of an actor", "here")
                thread = threading.Thread(target=log.warning, args=["here of its thread"])
                thread.start()
                thread.join()

        logging.basicConfig(format="%(message)s")
        log = logging.getLogger("mine")
        log.warning("made before")
        procs = this_host().spawn_procs()
        logging.getLogger("late").addHandler(logging.StreamHandler())
        log.warning("%d%% of it", 5)
        log.warning("100%", extra={"actor": "a field of the program"})
        log.warning("")
        log.warning({"an": "object"})
        logging.getLogger("late").warning("of a handler added later")
        logging.getLogger("monarch.job").warning("of the package")
        this_proc().spawn("my_logs", Logs).log.call_one().get()
        monarch.actor.config.prefix_python_logs_with_actor = False
        log.warning("turned off")
        """)
    actor = "[actor=<root>.<__main__.Logs my_logs{}>]"
    later = "[actor=<root>] of a handler added later"  # by its own, and by that of the root logger
    assert result.stderr.splitlines() == [
        "made before",
        "[actor=<root>] 5% of it",
        "[actor=<root>] 100%",
        "",
        "{'an': 'object'}",
        later,
        later,
        "of the package",
        f"{actor} here of an actor",
        f"{actor} here of its thread",
        "turned off",
    ]


LOGS = """
import logging
from monarch.actor import Actor, endpoint, this_host

class Logs(Actor):
    @endpoint
    def log(self, configure):
        if configure:
            logging.basicConfig(format="MINE %(message)s")
        logging.getLogger("a.library").debug("said for debugging")
        logging.getLogger("a.library").info("said for information")
        self.logger.warning("said as a warning")

def log(configure=False):
    this_host().spawn_procs().spawn("my_logs", Logs).log.call_one(configure).get()
"""


def test_procs_log_at_the_level_and_in_the_format_of_the_client() -> None:
    result = run_script(
        LOGS + 'logging.basicConfig(level="INFO", format="CLIENT {levelname} {message}",'
        ' style="{")\nlog()'
    )
    assert "said for debugging" not in result.stderr, str(result)
    assert re.search(r"CLIENT INFO \[actor=.*my_logs.*\] said for information\n", result.stderr), (
        str(result)
    )
    assert re.search(r"CLIENT WARNING \[actor=.*my_logs.*\] said as a warning\n", result.stderr), (
        str(result)
    )


def test_what_an_actor_configures_for_its_logs_counts() -> None:
    result = run_script(
        LOGS + 'logging.basicConfig(level="INFO", format="CLIENT %(message)s")\nlog(configure=True)'
    )
    assert "CLIENT" not in result.stderr, str(result)
    assert re.search(r"MINE \[actor=.*my_logs.*\] said for information\n", result.stderr), str(
        result
    )


def test_logging_functions_keep_the_clients_format_until_an_actor_sets_one() -> None:
    result = run_script("""
        import logging
        from monarch.actor import Actor, endpoint, this_host

        class Logs(Actor):
            @endpoint
            def log(self):
                logging.error("first")
                try:
                    1 / 0
                except ZeroDivisionError:
                    logging.exception("second")
                logging.getLogger("a.library").info("third")
                logging.basicConfig()  # as Python does it
                logging.error("fourth")
                logging.basicConfig(format="MINE %(message)s", force=True)
                logging.error("fifth")

        logging.basicConfig(level="INFO", format="CLIENT %(message)s")
        this_host().spawn_procs().spawn("my_logs", Logs).log.call_one().get()
        """)
    said = [
        (line.split()[0], line.split()[-1])
        for line in result.stderr.splitlines()
        if "my_logs" in line
    ]
    expected = [("CLIENT", "first"), ("CLIENT", "second"), ("CLIENT", "third"), ("MINE", "fifth")]
    assert [one for one in said if one[1] != "fourth"] == expected, str(result)
    assert re.search(r"^ERROR:root:\[actor=.*\] fourth$", result.stderr, re.MULTILINE), str(result)


def test_procs_log_as_python_does_where_the_client_has_configured_nothing() -> None:
    result = run_script(LOGS + "log()")
    assert "said for information" not in result.stderr, str(result)
    assert result.stderr.count("said as a warning") == 1, str(result)
