"""`in_environment`: packages for procs, made on each host from a file that came with a sync."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.wheels import make_wheel
from monarch.actor import Actor, endpoint
from monarch.environments import in_environment
from monarch.errors import EnvironmentFailed
from monarch.job import ProcessJob

pytestmark = [pytest.mark.usefixtures("_process_test"), pytest.mark.timeout(180)]


class Importer(Actor):
    @endpoint
    def value(self, module: str) -> tuple[object, str, str]:
        namespace: dict[str, object] = {}
        exec(f"from {module} import VALUE", namespace)
        return namespace["VALUE"], str(sys.modules[module].__file__), sys.prefix


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessJob]:
    """Two hosts, with a project to sync."""
    monkeypatch.setenv("MONARCH_SYNC_FOLDER", str(tmp_path / "store"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project" / "lib" / "src").mkdir(parents=True)
    job = ProcessJob({"hosts": 2})
    yield job
    job.kill()


@pytest.mark.slow
def test_a_wheel_added_to_the_requirements_is_importable_in_the_next_mesh(
    job: ProcessJob, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    make_wheel(project / "wheels", "tiny_one", "1.0")
    make_wheel(project / "wheels", "tiny_two", "2.0")
    (project / "requirements.txt").write_text("tiny_one  # the first\n-e ./lib\n")
    (project / "lib" / "pyproject.toml").write_text("[project]\nname = 'lib'\ndependencies = []\n")
    (project / "lib" / "src" / "tiny_lib.py").write_text("VALUE = 'a'\n")
    hosts = job.state(None).hosts

    def values(*modules: str) -> list[tuple[object, str, str]]:
        job.sync(project)
        ready = in_environment(hosts, "requirements.txt", wheels="wheels", offline=True)
        with ready.spawn_procs() as procs:
            importer = procs.spawn("importer", Importer)
            answers = [importer.value.call(module).get() for module in modules]
            return [value for answer in answers for value in answer.values()]

    one, again, lib, _ = values("tiny_one", "tiny_lib")
    assert one == again and one[0] == "1.0" and lib[0] == "a"
    assert one[1].startswith(f"{one[2]}/") and one[2].startswith(f"{tmp_path}/store/environments/")

    (project / "requirements.txt").write_text("tiny_one\ntiny_two>=2\n-e ./lib\n")
    (project / "lib" / "src" / "tiny_lib.py").write_text("VALUE = 'bb'\n")
    two, _, lib, _ = values("tiny_two", "tiny_lib")
    assert two[0] == "2.0" and lib[0] == "bb" and two[2] != one[2]

    (project / "requirements.txt").write_text("tiny_three\n")
    with pytest.raises(EnvironmentFailed, match="on 2 of 2 hosts") as failed:
        values()
    assert str(failed.value).count("No matching distribution found for tiny_three") == 1
    assert "Traceback" not in str(failed.value)
