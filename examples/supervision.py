"""An actor that looks after its children: one is killed, its owner hears of it and starts a new
one.

Whoever creates a mesh owns it and is told when a rank of it dies, through ``__supervise__``.
Returning True says "handled"; otherwise the owner fails too, and its own owner is told, up to the
script itself.

    python examples/supervision.py
"""

import os
import signal

from monarch.actor import Actor, MeshFailure, endpoint, this_host


class Worker(Actor):
    """Counts words; on some inputs it takes its whole process down, as a bad driver or a full
    memory would.
    """

    @endpoint
    def count(self, text: str) -> int:
        if "poison" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        return len(text.split())


class Foreman(Actor):
    """Owns one worker at a time.

    Its callers never see that a worker died; they see which text was skipped.
    """

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.hire()

    def hire(self) -> None:
        # The new process and the new worker belong to this actor: it made them.
        self.worker = this_host().spawn_procs(name="crew").spawn("worker", Worker)

    def __supervise__(self, failure: MeshFailure) -> bool:
        if failure.mesh_name.startswith("worker"):
            self.failures.append(failure.report())
        return True

    @endpoint
    def count_all(self, texts: list[str]) -> dict[str, int | None]:
        counts: dict[str, int | None] = {}
        for text in texts:
            try:
                counts[text] = self.worker.count.call_one(text).get(timeout=60)
            except RuntimeError as error:
                # SupervisionError: the worker died with this call in its hands
                print(
                    f"foreman: lost the worker on {text!r} ({type(error).__name__}), hiring"
                    " another",
                    flush=True,
                )
                counts[text] = None
                self.hire()
        return counts

    @endpoint
    def history(self) -> list[str]:
        return self.failures


def main() -> None:
    foreman = this_host().spawn_procs(name="office").spawn("foreman", Foreman)

    counts = foreman.count_all.call_one(["one two three", "a poison pill", "still here"]).get(
        timeout=120
    )
    for text, count in counts.items():
        print(f"{text!r:18} {'skipped' if count is None else count}")

    history = foreman.history.call_one().get(timeout=60)
    print(f"the foreman was told of {len(history)} failed worker(s):")
    for report in history:
        print("  " + report.strip().replace("\n", "\n  "))


if __name__ == "__main__":
    main()
