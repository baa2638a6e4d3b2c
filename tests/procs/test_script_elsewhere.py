"""Names of the script where they are hard to find: in processes of an actor, and in annotations."""

from __future__ import annotations

import textwrap

from helpers.scripts import run_script

CLASSES = """
from __future__ import annotations
import multiprocessing, pickle, sys, typing, inspect
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from monarch.actor import Actor, endpoint, this_host

@dataclass
class Other:
    size: int
@dataclass
class Config:
    size: int
    other: Other | None = None
def double(x): return 2 * x
CONFIG = Config(3, Other(4))
"""


def prints(source: str, expected: str) -> None:
    result = run_script(CLASSES + textwrap.dedent(source))
    assert result.exit_code == 0, str(result)
    assert result.stdout.strip() == expected, str(result)
    assert result.left_behind == [], str(result)


FETCHES = """
def fetch(pickled):
    config, function = pickle.loads(pickled)
    assert function(4) == 8
    return pickle.dumps([config, function])

def fetch_below(pickled):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(fetch, (pickled,))

class Worker(Actor):
    @endpoint
    def ask(self):
        sent = [CONFIG, double]
        pickled = pickle.dumps(sent)
        got = []
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            got.append(pool.apply(fetch, (pickled,)))
        with multiprocessing.get_context("forkserver").Pool(1) as pool:
            got.append(pool.apply(fetch, (pickled,)))
        with ProcessPoolExecutor(1) as pool:
            got.append(pool.submit(fetch_below, pickled).result())
        return [pickle.loads(each) == sent for each in got]

if __name__ == "__main__":
    print(this_host().spawn_procs().spawn("w", Worker).ask.call_one().get())
"""


def test_processes_of_an_actor_and_theirs_find_the_script_by_its_names() -> None:
    prints(FETCHES, "[True, True, True]")


def test_what_cannot_be_sent_or_is_large_keeps_no_process_from_starting() -> None:
    prints(
        """
        import threading
        LOCK, DATA = threading.Lock(), bytes(10_000_000)

        def held(): return LOCK
        def large(): return DATA

        def fetch(pickled):
            try:
                return len(pickle.loads(pickled)())
            except AttributeError as error:
                return str(error)

        class Worker(Actor):
            @endpoint
            def ask(self, function):
                with multiprocessing.Pool(1) as pool:
                    given = pool.apply(function)
                    return len(given), pool.apply(fetch, (b"c__main__\\nlarge\\n.",))

        if __name__ == "__main__":
            print(this_host().spawn_procs().spawn("w", Worker).ask.call_one(large).get())
        """,
        """(10000000, "Can't get attribute 'large' on <module '__main__'>")""",
    )


def test_annotations_of_functions_and_methods_resolve_where_they_have_come_to() -> None:
    prints(
        """
        import fractions, sqlite3

        Size = typing.Union[int, Config]

        def use(config: Config, size: typing.Optional[Size] = None) -> fractions.Fraction: ...
        def ask(connection: sqlite3.Connection): ...

        class Worker(Actor):
            @endpoint
            def imported(self):
                before = "fractions" in sys.modules
                import fractions
                return before

            @endpoint
            def hints(self, function):
                return typing.get_type_hints(function)

            @endpoint
            def signature(self):
                return inspect.signature(self.helper, eval_str=True).return_annotation

            def helper(self) -> Other: ...

            @endpoint
            def missed(self, function):
                try:
                    return typing.get_type_hints(function)
                except NameError as error:
                    return str(error), "sqlite3" in sys.modules

        if __name__ == "__main__":
            worker = this_host().spawn_procs().spawn("w", Worker)
            print(worker.imported.call_one().get())
            print(worker.hints.call_one(use).get() == typing.get_type_hints(use))
            print(worker.signature.call_one().get() is Other)
            print(worker.missed.call_one(ask).get())
        """,
        """False
True
True
("name 'sqlite3' is not defined", False)""",
    )
