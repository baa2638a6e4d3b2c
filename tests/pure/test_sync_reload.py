"""New code in a process: what runs it after a reload, what keeps the old one, and that this is
said.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monarch.sync.reload import reload


class Project:
    """A folder of modules with names that no other test uses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, **files: str) -> None:
        for name, text in files.items():
            path = self.folder / (name.replace("__in__", "/") + ".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()

    def load(self, name: str) -> Any:
        return importlib.import_module(name)

    def reload(self, *changed: str) -> tuple[list[str], int, dict[str, str]]:
        names, objects, kept = reload(str(self.folder), list(changed))
        return names, objects, dict(kept)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield Project(tmp_path)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_module_runs_its_new_code_also_where_others_have_taken_names_from_it(
    project: Project,
) -> None:
    project.write(
        rl_low="RATE = 1\ndef double(x):\n    return 2 * x\n",
        rl_high=(
            "from rl_low import RATE, double as twice\nimport rl_low\nown = []\ndef use():\n   "
            " return RATE, twice(3), rl_low.RATE\n"
        ),
    )
    high = project.load("rl_high")
    held, own = high.twice, high.own
    assert high.use() == (1, 6, 1)
    project.write(rl_low="RATE = 5\ndef double(x, y=1):\n    return 20 * x + y\n")
    assert project.reload("rl_low.py") == (["rl_low"], 0, {})
    assert high.use() == (5, 61, 5)
    assert held(3) == 61, "functions that are held elsewhere"
    assert high.own is own, "nothing else of what has not changed"


def test_names_that_a_module_has_set_itself_stay(project: Project) -> None:
    project.write(rl_from="RATE = 1\n", rl_to="from rl_from import RATE\nRATE = RATE + 10\n")
    to = project.load("rl_to")
    project.write(rl_from="RATE = 2\n")
    project.reload("rl_from.py")
    assert to.RATE == 11


def test_objects_take_the_new_class_and_keep_what_they_hold(project: Project) -> None:
    project.write(
        rl_base=(
            "class Base:\n    def name(self):\n        return 'old base'\n    class Inner:\n       "
            " x = 1\n"
        ),
        rl_derived="from rl_base import Base\nclass Derived(Base):\n    pass\n",
    )
    base, derived = project.load("rl_base"), project.load("rl_derived")
    objects = [base.Base(), derived.Derived(), base.Base.Inner()]
    objects[0].state = 7
    project.write(
        rl_base=(
            "class Base:\n    def name(self):\n        return 'new base'\n    class Inner:\n       "
            " x = 2\n"
        )
    )
    names, count, kept = project.reload("rl_base.py")
    assert (names, count, kept) == (["rl_base"], 2, {})
    assert [objects[0].name(), objects[1].name(), objects[2].x] == ["new base", "new base", 2]
    assert (
        objects[0].state == 7
        and isinstance(objects[0], base.Base)
        and isinstance(objects[1], base.Base)
    )


def test_modules_that_depend_on_each_other_are_executed_in_that_order(project: Project) -> None:
    project.write(
        rl_pkg__in____init__="",
        rl_pkg__in__b="X = 1\n",
        rl_pkg__in__a="from .b import X\nY = X + 1\n",
    )
    a = project.load("rl_pkg.a")
    project.write(rl_pkg__in__b="X = 10\n", rl_pkg__in__a="from .b import X\nY = X + 2\n")
    names, _, _ = project.reload("rl_pkg/a.py", "rl_pkg/b.py")
    assert names == ["rl_pkg.b", "rl_pkg.a"] and a.Y == 12


def test_a_module_that_fails_keeps_its_old_code_as_a_whole(project: Project) -> None:
    project.write(rl_bad="A = 1\nB = 1\n", rl_good="C = 1\n", rl_wrong="D = 1\n")
    bad, good, wrong = map(project.load, ("rl_bad", "rl_good", "rl_wrong"))
    project.write(rl_bad="A = 2\nraise ValueError('no')\n", rl_good="C = 2\n", rl_wrong="D = = 2\n")
    names, _, kept = project.reload("rl_bad.py", "rl_good.py", "rl_wrong.py")
    assert names == ["rl_good"] and good.C == 2
    assert kept["rl_bad"] == "ValueError: no" and "SyntaxError" in kept["rl_wrong"]
    assert (bad.A, bad.B, wrong.D) == (1, 1, 1)


def test_what_cannot_be_reloaded_is_said(project: Project) -> None:
    project.write(
        rl_slots="class Slots:\n    __slots__ = ('a',)\n",
        rl_gone="X = 1\n",
        rl_closure=(
            "def make():\n    y = 1\n    def f():\n        return y\n    return f\nf = make()\n"
        ),
    )
    slots = project.load("rl_slots")
    project.load("rl_gone")
    project.load("rl_closure")
    one = slots.Slots()
    one.a = [1]
    extension = type(sys)("rl_extension")
    extension.__file__ = str(project.folder / "rl_extension.so")
    Path(extension.__file__).touch()
    sys.modules["rl_extension"] = extension
    project.write(
        rl_slots="class Slots:\n    __slots__ = ('a', 'b')\n", rl_closure="def f():\n    return 2\n"
    )
    (project.folder / "rl_gone.py").unlink()
    names, count, kept = project.reload(
        "rl_slots.py", "rl_gone.py", "rl_closure.py", "rl_extension.so", "data.txt"
    )
    assert (names, count) == (["rl_slots", "rl_closure"], 0)
    assert kept["rl_gone"] == "its file is gone" and "extension module" in kept["rl_extension"]
    assert kept["rl_slots.Slots"].startswith("1 objects of the old class: ")
    assert "free vars" in kept["rl_closure.f"]


def test_what_is_not_imported_is_not_imported_by_a_reload(project: Project) -> None:
    project.write(rl_unused="raise RuntimeError\n")
    assert project.reload("rl_unused.py") == ([], 0, {})
    assert "rl_unused" not in sys.modules
