"""`configure(preload=[...])`: modules that are imported once, before procs are forked."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo
from helpers.scripts import run_script
from monarch.actor import Actor, endpoint
from monarch.config import configured

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("modules that a host imports for its procs")

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="preloads torch; it is not installed"
)


class Modules(Actor):
    @endpoint
    def loaded(self, name: str) -> bool:
        return name in sys.modules

    @endpoint
    def attribute(self, module: str, name: str) -> Any:
        return getattr(importlib.import_module(module), name)

    @endpoint
    def set_attribute(self, module: str, name: str, value: Any) -> None:
        setattr(importlib.import_module(module), name, value)


USES_TORCH = """
    import subprocess, sys, time
    from monarch.actor import Actor, endpoint, this_host
    from monarch.config import configure

    class UsesTorch(Actor):
        @endpoint
        def train(self):
            import torch
            torch.manual_seed(0)
            model = torch.nn.Linear(256, 256)
            model(torch.ones(512, 256)).sum().backward()
            return bool(model.weight.grad.isfinite().all())

    if __name__ == "__main__":
        subprocess.run([sys.executable, "-c", "import torch"], check=True)  # its files are in memory from here on
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        alone = time.perf_counter() - start

        configure(preload=["torch"])
        start = time.perf_counter()
        answers = this_host().spawn_procs(per_host={"gpus": 8}).spawn("actors", UsesTorch).train.call().get()
        eight = time.perf_counter() - start
        assert answers.values() == [True] * 8
        assert "torch" not in sys.modules

        start = time.perf_counter()
        this_host().spawn_procs(per_host={"gpus": 8}).spawn("actors", UsesTorch).train.call().get()
        again = time.perf_counter() - start
        print(alone, eight, again)
"""


@needs_torch
@pytest.mark.timeout(180)
@pytest.mark.slow
def test_eight_procs_that_use_torch_start_in_about_the_time_of_one_import() -> None:
    result = run_script(USES_TORCH, timeout=150)
    assert result.exit_code == 0, result
    assert result.left_behind == []
    alone, eight, again = map(float, result.stdout.split())
    print(f"one import {alone:.2f} s, 8 procs {eight:.2f} s, 8 more {again:.2f} s")
    assert eight < 3 * alone
    assert again < 3 * alone


@needs_torch
@pytest.mark.timeout(120)
def test_procs_of_a_client_that_has_imported_torch_start_with_it() -> None:
    result = run_script(
        """
        import sys, torch
        from monarch.actor import Actor, endpoint, this_host

        class Modules(Actor):
            @endpoint
            def loaded(self, name):
                return name in sys.modules

        if __name__ == "__main__":
            modules = this_host().spawn_procs(per_host={"gpus": 2}).spawn("modules", Modules)
            print(modules.loaded.call("torch").get().values())
        """,
        timeout=90,
    )
    assert result.exit_code == 0, result
    assert result.stdout.split("\n")[0] == "[True, True]"


def test_a_module_of_the_user_runs_once_for_all_procs(
    spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    (tmp_path / "costly_to_import.py").write_text(
        f"import os\npid = os.getpid()\ntable = [0] * 10\nopen({str(runs)!r},"
        " 'a').write('run\\n')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with configured(preload=["costly_to_import"]):
        first, second = (spawn(4).spawn("modules", Modules) for _ in range(2))
        for modules in (first, second):
            pids = set(modules.attribute.call("costly_to_import", "pid").get().values())
            assert len(pids) == 1
            assert os.getpid() not in pids
    assert runs.read_text() == "run\n"
    assert "costly_to_import" not in sys.modules


def test_procs_do_not_share_the_state_of_a_preloaded_module(
    spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared_at_first.py").write_text("value = 'as imported'\n")
    monkeypatch.syspath_prepend(tmp_path)
    with configured(preload=["shared_at_first"]):
        modules = spawn(2).spawn("modules", Modules)
    modules.slice(gpus=0).set_attribute.call_one("shared_at_first", "value", "changed").get()
    assert modules.attribute.call("shared_at_first", "value").get().values() == [
        "changed",
        "as imported",
    ]
    later = spawn(1).spawn("modules", Modules)
    assert later.attribute.call_one("shared_at_first", "value").get() == "as imported"


def test_what_a_preloaded_module_has_to_undo_is_not_undone_by_each_proc(
    spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    (tmp_path / "has_a_folder.py").write_text(
        "import os, shutil, weakref\nclass Folder: pass\nfolder ="
        f" Folder()\nos.mkdir({str(scratch)!r})\nweakref.finalize(folder, shutil.rmtree,"
        f" {str(scratch)!r})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with configured(preload=["has_a_folder"]):
        for _ in range(2):
            procs = spawn(1)
            assert procs.spawn("modules", Modules).loaded.call_one("has_a_folder").get()
            procs.stop().get()
            assert scratch.exists()


def test_a_module_that_is_not_there_is_an_error_of_the_mesh(spawn: Spawn) -> None:
    with configured(preload=["no_such_module_anywhere"]):
        procs = spawn(2)
    with pytest.raises(Exception, match="ModuleNotFoundError.*no_such_module_anywhere"):
        procs.initialized.get()
    assert spawn(1).spawn("echo", Echo).say.call_one("still here").get() == "still here"


def test_a_module_that_fails_when_it_is_imported_is_an_error_of_the_mesh(
    spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fails_when_imported.py").write_text("raise ValueError('not like this')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with configured(preload=["fails_when_imported"]):
        procs = spawn(2)
    with pytest.raises(Exception, match="ValueError: not like this"):
        procs.initialized.get()
    assert spawn(1).spawn("echo", Echo).say.call_one("still here").get() == "still here"


@needs_torch
@pytest.mark.timeout(120)
@pytest.mark.parametrize("preloaded", [True, False], ids=["preloaded", "not preloaded"])
@pytest.mark.slow
def test_ranks_that_import_the_compiler_one_by_one_say_how_to_avoid_it(preloaded: bool) -> None:
    result = run_script(
        f"""
        from monarch.actor import Actor, endpoint, this_host
        from monarch.config import configure

        class Trainer(Actor):
            @endpoint
            def use(self):
                import torch._dynamo

        if __name__ == "__main__":
            configure(preload={["torch._dynamo"] if preloaded else ["torch"]})
            this_host().spawn_procs(per_host={{"gpus": 2}}).spawn("trainers", Trainer).use.call().get()
        """,
        timeout=90,
    )
    assert result.exit_code == 0, result
    assert (result.stdout + result.stderr).count('configure(preload=["torch._dynamo"])') == (
        0 if preloaded else 1
    )
