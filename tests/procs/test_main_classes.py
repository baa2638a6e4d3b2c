"""Classes, functions and modules of a user's script, as procs see them."""

from __future__ import annotations

import pytest

from helpers.scripts import ScriptResult, run_script


def succeeds(source: str, expected: str, **options: object) -> ScriptResult:
    result = run_script(source, **options)  # type: ignore[arg-type]
    assert result.exit_code == 0, str(result)
    assert result.stdout.strip() == expected, str(result)
    assert result.left_behind == [], str(result)
    return result


def test_classes_functions_and_constants_of_the_script_are_usable_in_procs() -> None:
    succeeds(
        """
        from dataclasses import dataclass
        from monarch.actor import Actor, endpoint, this_host

        FACTOR = 10

        @dataclass
        class Config:
            size: int

        class Base(Actor):
            def helper(self, x):
                return x * FACTOR

        def double(x):
            return 2 * x

        class Worker(Base):
            def __init__(self, config: Config):
                super().__init__()
                self.config = config

            @endpoint
            def work(self, x: int) -> Config:
                return Config(self.helper(double(x)) + self.config.size)

        procs = this_host().spawn_procs(per_host={"gpus": 2})
        worker = procs.spawn("worker", Worker, Config(1))
        result = worker.work.call(3).get().values()
        print(result, all(type(value) is Config for value in result))
        """,
        "[Config(size=61), Config(size=61)] True",
    )


def test_spawning_a_class_of_the_script_again_does_not_reset_the_running_actors() -> None:
    succeeds(
        """
        from monarch.actor import Actor, endpoint, this_host

        COUNT = 1

        class Worker(Actor):
            class_count = 1

            @endpoint
            def bump(self):
                global COUNT
                COUNT += 6
                type(self).class_count += 6

            @endpoint
            def counts(self):
                return COUNT, Worker.class_count, self.class_count

        procs = this_host().spawn_procs(per_host={"gpus": 1})
        first = procs.spawn("first", Worker)
        first.bump.call_one().get()
        before = first.counts.call_one().get()
        second = procs.spawn("second", Worker)
        second.counts.call_one().get()
        print(before, first.counts.call_one().get(), COUNT, Worker.class_count)
        """,
        "(7, 7, 7) (7, 7, 7) 1 1",
    )


def test_sending_an_object_of_a_class_of_the_script_does_not_reset_the_class_either() -> None:
    succeeds(
        """
        from monarch.actor import Actor, endpoint, this_host

        class Message:
            seen = 0

            def __init__(self, text):
                self.text = text

        class Worker(Actor):
            @endpoint
            def take(self, message):
                type(message).seen += 1
                return type(message).seen, isinstance(message, Message)

        worker = this_host().spawn_procs().spawn("worker", Worker)
        print([worker.take.call_one(Message(str(i))).get() for i in range(3)], Message.seen)
        """,
        "[(1, True), (2, True), (3, True)] 0",
    )


def test_the_directory_of_the_script_is_importable_in_procs_as_it_is_in_the_script() -> None:
    succeeds(
        """
        from monarch.actor import this_host
        import workers
        from workers import Worker

        workers.STATE = "changed in the client only"
        worker = this_host().spawn_procs(per_host={"gpus": 2}).spawn("worker", Worker)
        print(worker.module.call().get().values(), worker.lazily.call().get().values())
        """,
        "[('workers', 'as written'), ('workers', 'as written')] [42, 42]",
        files={
            "workers.py": (
                """
            from monarch.actor import Actor, endpoint

            STATE = "as written"

            class Worker(Actor):
                @endpoint
                def module(self):
                    return type(self).__module__, STATE

                @endpoint
                def lazily(self):
                    import imported_later
                    return imported_later.VALUE
            """
            ),
            "imported_later.py": "VALUE = 42\n",
        },
    )


def test_a_directory_that_the_script_puts_on_its_path_is_importable_in_procs() -> None:
    succeeds(
        """
        import os
        import sys
        import tempfile
        from monarch.actor import this_host

        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "plugin_module.py"), "w") as f:
                f.write("from monarch.actor import Actor, endpoint\\n")
                f.write("class Plugin(Actor):\\n")
                f.write("    @endpoint\\n")
                f.write("    def where(self):\\n")
                f.write("        return __name__\\n")
            sys.path.insert(0, folder)
            import plugin_module
            plugin = this_host().spawn_procs().spawn("plugin", plugin_module.Plugin)
            print(plugin.where.call_one().get())
        """,
        "plugin_module",
    )


def test_lambdas_and_closures_of_the_script_are_sent_by_value() -> None:
    succeeds(
        """
        from monarch.actor import Actor, endpoint, this_host

        class Applies(Actor):
            @endpoint
            def apply(self, function, *args):
                return function(*args)

        def make_adder(n):
            def add(x):
                return x + n
            return add

        def factorial(n):
            return 1 if n == 0 else n * factorial(n - 1)

        applies = this_host().spawn_procs().spawn("applies", Applies)
        call = lambda f, *args: applies.apply.call_one(f, *args).get()
        print(call(lambda x: x + 1, 1), call(make_adder(5), 1), call(factorial, 5), call(lambda: make_adder(1)(1)))
        """,
        "2 6 120 2",
    )


def test_the_script_is_not_run_again_in_procs() -> None:
    succeeds(
        """
        print("the script runs")
        from monarch.actor import Actor, endpoint, this_host

        class Worker(Actor):
            @endpoint
            def work(self):
                return 1

        print(this_host().spawn_procs(per_host={"gpus": 2}).spawn("w", Worker).work.call().get().values())
        """,
        "the script runs\n[1, 1]",
    )


def test_an_exception_class_of_the_script_comes_back_as_itself() -> None:
    succeeds(
        """
        from monarch.actor import Actor, ActorError, endpoint, this_host

        class MyError(Exception):
            pass

        class Worker(Actor):
            @endpoint
            def fail(self):
                raise MyError("mine")

        worker = this_host().spawn_procs().spawn("w", Worker)
        try:
            worker.fail.call_one().get()
        except ActorError as e:
            print(type(e.exception) is MyError, e.exception.args, "raise MyError" in str(e))
        """,
        "True ('mine',) True",
    )


def test_the_source_of_the_script_is_shown_in_the_remote_traceback() -> None:
    succeeds(
        """
        from monarch.actor import Actor, ActorError, endpoint, this_host

        class Worker(Actor):
            @endpoint
            def fail(self):
                distinctive_name_of_a_variable = {}
                return distinctive_name_of_a_variable["missing"]

        try:
            this_host().spawn_procs().spawn("w", Worker).fail.call_one().get()
        except ActorError as e:
            text = str(e)
            print('return distinctive_name_of_a_variable["missing"]' in text, "script.py" in text, "line 8" in text)
        """,
        "True True True",
    )


def test_a_program_given_by_dash_c_works() -> None:
    import subprocess
    import sys

    program = (
        "from monarch.actor import Actor, endpoint, this_host\n"
        "class W(Actor):\n"
        "    @endpoint\n"
        "    def f(self): return 5\n"
        "print(this_host().spawn_procs().spawn('w', W).f.call_one().get())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=40
    )
    assert (result.returncode, result.stdout.strip()) == (0, "5"), result.stderr


@pytest.mark.parametrize("procs", [1, 2])
def test_processes_that_an_actor_starts_get_and_return_what_the_script_defines(procs: int) -> None:
    succeeds(
        """
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor
        from dataclasses import dataclass
        from monarch.actor import Actor, endpoint, this_host

        @dataclass
        class Item:
            value: int

        class Refused(Exception):
            pass

        def square(item):
            if item.value > 2:
                raise Refused(item.value)
            return Item(item.value ** 2)

        class Worker(Actor):
            @endpoint
            def map(self):
                with multiprocessing.Pool(1) as pool:
                    return pool.map(square, [Item(1), Item(2)])

            @endpoint
            def submit(self):
                factor = 3
                with ProcessPoolExecutor(1) as pool:
                    return pool.submit(lambda item: square(item).value * factor, Item(2)).result()

            @endpoint
            def refused(self):
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    try:
                        pool.map(square, [Item(3)])
                    except Refused as error:
                        return str(error)

        worker = this_host().spawn_procs({"gpus": PROCS}).spawn("worker", Worker).slice(gpus=0)
        mapped = worker.map.call_one().get()
        print(mapped, type(mapped[0]) is Item, worker.submit.call_one().get(), worker.refused.call_one().get())
        """.replace("PROCS", str(procs)),
        "[Item(value=1), Item(value=4)] True 12 3",
    )


@pytest.mark.parametrize("where", ["at the top", "in a function"])
def test_a_dotted_module_that_only_a_nested_function_uses_is_imported_over_there(
    where: str,
) -> None:
    top, inside = (
        ("import email.mime.text", "pass")
        if where == "at the top"
        else ("", "import email.mime.text")
    )
    succeeds(
        f"""
        from monarch.actor import Actor, endpoint, this_host
        {top}

        class Runs(Actor):
            @endpoint
            def run(self, function):
                return function()

        def main():
            {inside}

            def outer():
                return (lambda: (lambda: email.mime.text.MIMEText("x").get_payload()))()()

            print(this_host().spawn_procs().spawn("r", Runs).run.call_one(outer).get())

        main()
        """,
        "x",
    )


def test_an_actor_of_the_script_can_use_the_module_with_the_switch_for_logs() -> None:
    succeeds(
        """
        import logging
        from monarch.actor import Actor, config, endpoint, this_host

        class Worker(Actor):
            def __init__(self):
                config.prefix_python_logs_with_actor = False

            @endpoint
            def state(self):
                return config.prefix_python_logs_with_actor, config

        here = config
        state = this_host().spawn_procs().spawn("w", Worker).state.call_one().get()
        print(state[0], state[1] is here, config.prefix_python_logs_with_actor)
        """,
        "False True True",
    )


CELLS = """
from monarch.actor import Actor, endpoint, this_host

procs = this_host().spawn_procs(per_host={"gpus": 2})
spawned = []

def run(cell):
    exec(compile(cell, "<cell>", "exec"), globals())

def show():
    print([actor.result.call().get().values()[0] for actor in spawned])
"""


def test_each_spawn_of_a_class_of_the_script_has_the_globals_of_its_moment() -> None:
    succeeds(
        CELLS
        + """
class Base(Actor):
    def base(self):
        return helper()

class Worker(Base):
    seen = 0

    @endpoint
    def result(self):
        global FACTOR
        FACTOR += 1
        type(self).seen += 1
        assert isinstance(self, Worker) and isinstance(self, Base)
        return super().base(), helper(), FACTOR, Worker.seen

    @endpoint
    def itself(self, other):
        return Worker, other

run("def helper(): return 'old'")
run("FACTOR = 10")
run("spawned.append(procs.spawn('worker', Worker))")
show()
run("def helper(): return 'new'")
run("FACTOR = 20")
run("spawned.append(procs.spawn('worker', Worker))")
show()
run("spawned.append(procs.spawn('worker', Worker))")
show()
here, mesh = spawned[1].itself.call(spawned[0]).get().values()[0]
print(here is Worker, mesh.result.call().get().values()[0], FACTOR, Worker.seen)
""",
        "[('old', 'old', 11, 1)]\n"
        "[('old', 'old', 12, 2), ('new', 'new', 21, 1)]\n"
        "[('old', 'old', 13, 3), ('new', 'new', 22, 2), ('new', 'new', 21, 1)]\n"
        "True ('old', 'old', 14, 4) 20 0",
    )


def test_each_spawn_has_the_other_classes_of_its_moment_and_values_pass_between_them() -> None:
    succeeds(
        CELLS
        + """
import enum
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue

class Color(enum.Enum):
    RED = 1

@dataclass
class Item:
    color: Color
    made = 0

    def __post_init__(self):
        Item.made += 1

    def name(self):
        return helper()

class Worker(Actor):
    @endpoint
    def result(self):
        return Item(Color.RED).name()

    @endpoint
    def take(self, item):
        return item.name(), type(item) is Item, item.color is Color.RED

    @endpoint
    def give(self, other):
        with ThreadPoolExecutor(1) as pool:  # its threads are the actor's
            back = pool.submit(lambda: other.give_back.call_one(Item(Color.RED)).get()).result()
        future, called = other.give_back.call_one(Item(Color.RED)), SimpleQueue()
        future.add_done_callback(lambda done: called.put(type(done.get()) is Item))
        return other.take.call_one(Item(Color.RED)).get(), type(back) is Item, back.color is Color.RED, called.get()

    @endpoint
    def give_back(self, item):
        assert isinstance(item, Item)
        return item

run("def helper(): return 'old'")
run("spawned.append(procs.spawn('worker', Worker))")
show()
run("def helper(): return 'new'")
run("spawned.append(procs.spawn('worker', Worker))")
show()
old, new = [mesh.slice(gpus=0) for mesh in spawned]
print([actor.take.call_one(Item(Color.RED)).get() for actor in (old, new)])
print(old.give.call_one(new).get())
print(new.give.call_one(old).get())
back = new.give_back.call_one(Item(Color.RED)).get()
print(type(back) is Item, back.color is Color.RED, back.name())
""",
        "['old']\n"
        "['old', 'new']\n"
        "[('old', True, True), ('new', True, True)]\n"
        "(('new', True, True), True, True, True)\n"
        "(('old', True, True), True, True, True)\n"
        "True True new",
    )


def test_a_class_that_is_defined_anew_is_another_and_leaves_the_actors_of_the_first() -> None:
    cell = "class Worker(Actor):\n    @endpoint\n    def result(self):\n        return {}\n"
    succeeds(
        CELLS
        + f"""
for result in (1, 2):
    run({cell!r}.format(result))
    run("spawned.append(procs.spawn('worker', Worker))")
show()
""",
        "[1, 2]",
    )


def test_cloudpickle_itself_finds_in_each_actor_the_class_of_this_actor() -> None:
    succeeds(
        """
        import enum
        import pickle
        import cloudpickle
        from monarch.actor import Actor, endpoint, this_host

        class Value:
            count = 0

        class Color(enum.Enum):
            RED = 1

        class Worker(Actor):
            @endpoint
            def count(self, count=None):
                Value.count = count or Value.count
                return Value.count

            @endpoint
            def round_trip(self):
                value, color = pickle.loads(cloudpickle.dumps((Value(), Color.RED)))
                return type(value) is Value, color is Color.RED

            @endpoint
            def take(self, value, color):
                return type(value) is Value, color is Color.RED

            @endpoint
            def load(self, dumped):
                return type(pickle.loads(dumped)) is Value

            @endpoint
            def give(self, other):
                return other.take.call_one(Value(), Color.RED).get(), Value(), Color.RED, cloudpickle.dumps(Value())

        procs = this_host().spawn_procs()
        first, second = procs.spawn("first", Worker), procs.spawn("second", Worker)
        first.count.call_one(7).get()
        second.count.call_one(8).get()
        print([worker.round_trip.call_one().get() for worker in (second, first, second)])
        print(first.count.call_one().get(), second.count.call_one().get(), Value.count)
        for giver, taker in ((first, second), (second, first)):
            taken, value, color, _ = giver.give.call_one(taker).get()
            print(taken, type(value) is Value, color is Color.RED)
        print([worker.load.call_one(cloudpickle.dumps(Value())).get() for worker in (first, second)])
        for giver, taker in ((first, second), (second, first)):
            dumped = giver.give.call_one(taker).get()[3]
            print(type(pickle.loads(dumped)) is Value, taker.load.call_one(dumped).get())
        """,
        "[(True, True), (True, True), (True, True)]\n7 8 0\n"
        + 2 * "(True, True) True True\n"
        + "[True, True]\nTrue True\nTrue True",
    )


def test_an_actor_in_the_scripts_process_has_its_class_and_globals() -> None:
    succeeds(
        """
        from monarch.actor import Actor, endpoint, this_proc

        found = []

        class Worker(Actor):
            @endpoint
            def find(self, x):
                found.append((x, type(self) is Worker))

        for x in (1, 2):
            this_proc().spawn("w", Worker).find.call_one(x).get()
        print(found)
        """,
        "[(1, True), (2, True)]",
    )
