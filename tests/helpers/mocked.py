"""Classes that tests replace, and what they put in their place."""

from __future__ import annotations

from monarch.actor import Actor, endpoint, this_proc


class Real(Actor):
    def __init__(self, value: int = 0) -> None:
        self.value = value

    @endpoint
    def who(self) -> str:
        return f"real {self.value}"


class Fake(Actor):
    def __init__(self, value: int = 0) -> None:
        self.value = value

    @endpoint
    def who(self) -> str:
        return f"fake {self.value}"


class OtherFake(Actor):
    @endpoint
    def who(self) -> str:
        return "other fake"


class Original(Actor):
    @endpoint
    def who(self) -> str:
        return "original"


class Replacement(Actor):
    @endpoint
    def who(self) -> str:
        return "replacement"


class Spawns(Actor):
    @endpoint
    def who(self) -> str:
        return this_proc().spawn("inner", Original).who.call_one().get()
