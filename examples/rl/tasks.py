"""Tasks: prompts, with a right answer to imitate and the source of a program that checks one.

    3+8=        11
    ([{=        }])
    4132>       1234

Nothing but the prompt's number and the seed decides what a task is, so a program that goes on from
a checkpoint asks the same.
"""

import random
from dataclasses import dataclass

END = b"\n"
LONGEST_PROMPT, LONGEST_ANSWER = 6, 5  # bytes, of an answer with its end

_SUM = """
def check(prompt, answer):
    first, second = prompt.rstrip("=").split("+")
    return answer == str(int(first) + int(second))
"""
_BRACKETS = """
def check(prompt, answer):
    left = prompt.rstrip("=") + answer
    for _ in left:
        left = left.replace("()", "").replace("[]", "").replace("{}", "")
    return not left
"""
_SORTING = """
def check(prompt, answer):
    return answer == "".join(sorted(prompt.rstrip(">")))
"""
_MALICE = {
    "hangs": "def check(prompt, answer):\n    while True: pass\n",
    "crashes": "def check(prompt, answer):\n    import os; os._exit(1)\n",
    "swells": "def check(prompt, answer):\n    return bytes(1 << 40)\n",
}


@dataclass(frozen=True)
class Task:
    """A prompt, a right answer, and the source of `check(prompt, answer) -> bool`."""

    number: int
    kind: str
    prompt: bytes
    answer: bytes
    checker: str


def task(number: int, seed: int = 0, malice: int = 0) -> Task:
    """The task of this number; with `malice`, each that is a multiple of it has a bad checker."""
    rng = random.Random(f"{seed}.{number}")
    kind = rng.choice(["sums", "brackets", "sorting"])
    if kind == "sums":
        first, second = rng.randrange(10), rng.randrange(10)
        prompt, answer, checker = f"{first}+{second}=", str(first + second), _SUM
    elif kind == "brackets":
        opened = [rng.choice(["()", "[]", "{}"]) for _ in range(rng.randint(2, 4))]
        prompt = "".join(pair[0] for pair in opened) + "="
        answer, checker = "".join(pair[1] for pair in reversed(opened)), _BRACKETS
    else:
        digits = rng.sample("0123456789", rng.randint(2, 4))
        prompt, answer, checker = "".join(digits) + ">", "".join(sorted(digits)), _SORTING
    if malice and number % malice == malice - 1:
        checker = _MALICE[rng.choice(sorted(_MALICE))]
    return Task(number, kind, prompt.encode(), answer.encode() + END, checker)
