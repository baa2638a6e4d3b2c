"""Actors that print before they answer, in every way in which an actor can answer."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import subprocess
import sys
import threading
import traceback

from monarch.actor import Actor, Port, current_rank, endpoint, this_proc


class Prints(Actor):
    @endpoint
    def say(self, text: str, end: str = "\n") -> int:
        print(text, end=end)
        return current_rank().rank

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def say_rank(self, text: str) -> None:
        print(text.format(rank=current_rank().rank))

    @endpoint
    def complain(self, text: str) -> None:
        print(text, file=sys.stderr)

    @endpoint
    def write_bytes(self, text: str) -> None:
        sys.stdout.buffer.write(text.encode() + b"\n")
        sys.stdout.buffer.flush()

    @endpoint
    def warn(self, text: str) -> None:
        logging.getLogger("of.a.library").warning(text)

    @endpoint
    def fail(self, text: str) -> None:
        print(text)
        raise ValueError("after having printed")

    @endpoint(explicit_response_port=True)
    def answer_later(self, port: Port[int], text: str) -> None:
        def answer() -> None:
            print(text)
            port.send(1)

        threading.Thread(target=answer).start()

    @endpoint
    def tell(self, port: Port[int], text: str) -> None:
        print(text)
        port.send(1)

    @endpoint
    def have_a_child_write(self, by_child: str, text: str) -> None:
        subprocess.run(["/bin/echo", by_child], check=True)
        print(text)

    @endpoint
    def say_quietly(self, text: str) -> None:
        with contextlib.redirect_stdout(None):
            print(text)

    @endpoint
    def say_lines(self, count: int, filler: str) -> None:
        rank = current_rank().rank
        for number in range(count):
            print(f"<rank {rank}", f"line {number}", f"{filler}>")


class PrintsAsync(Actor):
    @endpoint
    async def say(self, text: str) -> None:
        print(text)


class Asks(Actor):
    def __init__(self, printing: Prints) -> None:
        self._printing = printing

    @endpoint
    def ask(self, text: str) -> None:
        self._printing.say.call(text).get()


class PrintsLogs(Prints):
    """And uses `logging`, and progress bars."""

    @endpoint
    def silence_own_proc(self) -> None:
        this_proc().logging_option(stream_to_client=False).get()

    @endpoint
    def show_progress(self, steps: int) -> None:
        from tqdm import tqdm

        for _ in tqdm(range(steps), desc="epochs", mininterval=0, ncols=80):
            pass

    @endpoint
    def configure(self) -> None:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("chatty").setLevel(logging.DEBUG)

    @endpoint
    def log(self, level: int, text: str) -> None:
        logging.getLogger("of.a.library").log(level, text)

    @endpoint
    def log_as(self, name: str, level: int, text: str) -> None:
        logging.getLogger(name).log(level, text)

    @endpoint
    def print_traceback(self, text: str) -> None:
        try:
            raise ValueError(text)
        except ValueError:
            traceback.print_exc()


class Stuck(io.StringIO):
    """Somebody who does not read what the program writes, until he is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = threading.Event()
        self.begun = threading.Event()

    def write(self, text: str) -> int:
        self.begun.set()
        self.reads.wait()
        return super().write(text)
