"""What happens on a host when an environment is made there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from monarch._core.processes.proc import _search_path
from monarch.environments import CondaEnvironment, in_environment, venv
from monarch.environments.requirements import Requirements
from monarch.environments.venv import Made, Wanted, make
from monarch.errors import EnvironmentFailed

pytestmark = pytest.mark.timeout(180)  # each starts interpreters


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace; environments are made in a folder beside it, without uv."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.setenv("WORKSPACE_DIR", str(folder))
    monkeypatch.setenv("MONARCH_SYNC_FOLDER", str(tmp_path / "store"))
    monkeypatch.setattr(venv, "_uv", list)
    return folder


def made_of(project: Path, text: str) -> Made:
    """An environment; comments and editable folders, which are there, need no installer."""
    for name in ("used", "unused", "another"):
        (project / name).mkdir(exist_ok=True)
    (project / "requirements.txt").write_text(text)
    return make(Wanted("requirements.txt", "", False))


def folder_of(made: Made) -> Path:
    return Path(made.python).parents[1]


def test_two_clients_at_once_make_one_environment(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "requirements.txt").write_text("")
    both = threading.Barrier(2)
    commands: list[Sequence[str]] = []
    run = venv._run

    def counted(command: Sequence[str], *args: Any) -> str:
        commands.append(command)
        return run(command, *args)

    monkeypatch.setattr(venv, "_run", counted)

    def client(_: int) -> Made:
        both.wait()
        return make(Wanted("requirements.txt", "", False))

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(client, range(2))
    assert one.python == two.python and one.new != two.new
    assert sum("venv" in command for command in commands) == 1


def test_what_was_left_half_made_is_made_anew(project: Path) -> None:
    made = made_of(project, "")
    folder = folder_of(made)
    (folder / "complete").unlink()  # as where the host has died in the middle
    (folder / "half").touch()
    assert made_of(project, "") == made and made.new and not (folder / "half").exists()
    assert not made_of(project, "").new


def test_an_environment_lies_on_top_of_that_of_the_worker_and_has_editable_code(
    project: Path,
) -> None:
    (project / "lib").mkdir()
    (project / "lib" / "edited_lib.py").write_text("VALUE = 1\n")
    made = made_of(project, "-e lib\n")
    code = "import edited_lib, monarch, sys; print(edited_lib.VALUE, monarch.__file__, sys.prefix)"
    said = subprocess.run(
        [made.python, "-c", code], capture_output=True, text=True, check=True, timeout=100
    ).stdout
    import monarch

    assert said.split() == ["1", monarch.__file__, str(folder_of(made))]


def test_other_contents_are_another_environment(project: Path) -> None:
    names = {made_of(project, "").python}
    for name in ("one", "two"):
        (project / name).mkdir()
        names.add(made_of(project, f"-e {name}").python)
    (project / "more.txt").write_text("-e one\n-e two\n")
    names.add(made_of(project, "-r more.txt").python)
    assert len(names) == 4
    (project / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    names.add(make(Wanted("pyproject.toml", "", False)).python)
    (project / "wheels").mkdir()
    (project / "wheels" / "a.whl").write_bytes(b"a")
    names.add(make(Wanted("requirements.txt", "wheels", False)).python)
    assert len(names) == 6


def test_unused_environments_are_removed_and_those_in_use_stay(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, unused = made_of(project, "-e used"), made_of(project, "-e unused")
    running = subprocess.Popen(
        [used.python, "-c", "print('up', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None and running.stdout.readline() == "up\n"
    for each in (used, unused):
        os.utime(folder_of(each) / "complete", (0, 0))
    half = folder_of(used).with_name("half")
    half.mkdir()
    kept = made_of(project, "")
    assert not half.exists() and not half.with_suffix(".lock").exists()
    assert folder_of(used).exists() and folder_of(kept).exists() and not folder_of(unused).exists()
    running.communicate("\n", timeout=100)
    made_of(project, "-e another")
    assert not folder_of(used).exists() and folder_of(kept).exists()


def test_what_could_not_be_made_leaves_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MONARCH_SYNC_FOLDER")
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))
    with pytest.raises(EnvironmentFailed, match="-m pip ended with status") as failed:
        made_of(project, "no such thing ???")
    assert "Invalid requirement" in str(failed.value) and sys.executable not in str(failed.value)
    base = project / "cache" / "monarch" / "environments"
    assert [each.suffix for each in base.iterdir()] == [".lock"]
    made = made_of(project, "")
    folder = folder_of(made)
    assert folder.parent == base and {each.name for each in base.iterdir()} == {
        folder.name,
        f"{folder.name}.lock",
    }


def test_what_can_not_be_read_is_said(project: Path) -> None:
    with pytest.raises(EnvironmentFailed, match="there is no file .*/none.txt"):
        make(Wanted("none.txt", "", False))
    (project / "requirements.txt").touch()
    with pytest.raises(EnvironmentFailed, match="there is no folder of wheels .*/none"):
        make(Wanted("requirements.txt", "none", False))
    (project / "pyproject.toml").write_text("[project\n")
    with pytest.raises(EnvironmentFailed, match="pyproject.toml is not valid TOML"):
        make(Wanted("pyproject.toml", "", False))
    with pytest.raises(EnvironmentFailed, match="-e ./typo: there is no folder .*/typo"):
        made_of(project, "-e ./typo")
    (project / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(EnvironmentFailed, match="has no extra 'dev'; it has: none"):
        made_of(project, "-e .[dev]")
    (project / "environment.yml").write_bytes(b"\xff")
    with pytest.raises(EnvironmentFailed, match="environment.yml can't be read: 'utf-8' codec"):
        make(Wanted("environment.yml", "", False))
    with pytest.raises(ValueError, match="conda installs from no folder of wheels"):
        in_environment(cast("Any", None), "environment.yml", wheels="wheels")
    (project / "uv.lock").touch()
    with pytest.raises(EnvironmentFailed, match="uv is not on this host"):
        make(Wanted("uv.lock", "", False))


def wheel_of(folder: Path, value: int) -> None:
    """A wheel with a module of one line."""
    info = "tinyx-1.0.dist-info"
    with zipfile.ZipFile(folder / "tinyx-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tinyx.py", f"VALUE = {value}\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinyx\nVersion: 1.0\n")
        tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", tag)
        wheel.writestr(
            f"{info}/RECORD",
            "".join(f"{each},,\n" for each in (*wheel.namelist(), f"{info}/RECORD")),
        )


def test_the_same_wheel_path_in_two_workspaces_is_two_environments(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for value in (1, 2):
        workspace = tmp_path / str(value)
        workspace.mkdir()
        monkeypatch.setenv("WORKSPACE_DIR", str(workspace))
        wheel_of(workspace, value)
        (workspace / "limits.txt").write_text("tinyx<2\n")
        made = made_of(
            workspace, "--constraint=limits.txt\n./tinyx-1.0-py3-none-any.whl\n--no-index\n"
        )
        command = [made.python, "-c", "import tinyx; print(tinyx.VALUE)"]
        said.append(
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
        )
    assert said == ["1\n", "2\n"]


@pytest.mark.parametrize(
    "line",
    [
        "./here/x.whl",
        "here/x.whl",
        "x @ file:here/x.whl",
        "x@file:here/x.whl",
        "--find-links=here",
        "-f here",
        "-rhere/x",
    ],
)
def test_the_content_of_a_local_file_is_part_of_what_is_asked_for(project: Path, line: str) -> None:
    (project / "here").mkdir()
    found = []
    for content in ("a==1", "a==2"):
        (project / "here" / "x.whl").write_text(content)
        (project / "here" / "x").write_text(content)
        read = Requirements(project)
        read.read(line, project)
        found.append([*read.lines, *read.contents()])
    assert found[0] != found[1]


def test_an_editable_line_brings_extras_and_a_repository_is_left_to_the_installer(
    project: Path,
) -> None:
    (project / "pyproject.toml").write_text(
        "[project]\nname = 'Own_It'\ndependencies = ['one']\n[project.optional-dependencies]\n"
        "all = ['own-it[dev]', 'two']\ndev = ['three']\n"
    )
    read = Requirements(project)
    read.read(
        f"-e .[all]\n-e file://{project}\n-e git+https://x.org/y#egg=y\na \\\n  --hash=sha256:0",
        project,
    )
    assert read.editable == [str(project), str(project)]
    assert read.lines == [
        "one",
        "two",
        "three",
        "one",
        "-e git+https://x.org/y#egg=y",
        "a    --hash=sha256:0",
    ]


def test_files_that_name_each_other_are_read_once(project: Path) -> None:
    (project / "sub").mkdir()
    (project / "requirements.txt").write_text(
        "-r requirements.txt\n--requirement=sub/more.txt\none\n"
    )
    (project / "sub" / "more.txt").write_text("-r../requirements.txt\n-c limits.txt\ntwo\n")
    (project / "sub" / "limits.txt").write_text("two<3  # not yet\n")
    read = Requirements(project)
    read.read_file(project / "requirements.txt")
    assert (read.lines, read.constraints) == (["two", "one"], ["two<3"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("project = 3", "project is a table, got 3"),
        ("[project]\ndependencies = 'numpy'", "project.dependencies is a list, got 'numpy'"),
        ("[project]\ndependencies = [1]", r"project.dependencies is a list of strings, got \[1\]"),
        ("[project]\ndynamic = ['dependencies']", "known only once it is built"),
        ("[build-system]\nrequires = ['setuptools']", "known only once it is built"),
    ],
)
def test_a_project_that_says_nothing_usable_is_refused(project: Path, text: str, why: str) -> None:
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(EnvironmentFailed, match=why):
        make(Wanted("pyproject.toml", "", False))


def test_a_lock_file_is_exported_by_uv_which_also_makes_the_environment(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = project / "uv"  # stands for it: says what it is asked, and does that by other means
    uv.write_text(
        "#!/bin/bash\n"
        f'echo "$@" >> {project}/asked\n'
        "case $1 in export) echo '# exported'; echo '-e ./lib'; echo 'wanted==2';;\n"
        f'venv) exec {sys.executable} -m venv --without-pip "${{@: -1}}";; esac\n'
    )
    uv.chmod(0o700)
    monkeypatch.setattr(venv, "_uv", lambda: [str(uv)])
    (project / "lib").mkdir()
    (project / "lib" / "pyproject.toml").write_text(
        "[project]\nname = 'lib'\ndependencies = ['wanted>=2']\n"
    )
    (project / "uv.lock").touch()
    assert make(Wanted("uv.lock", "", True)).new
    exported, venv_made, installed = (project / "asked").read_text().splitlines()
    assert exported.startswith("export --frozen --no-emit-project") and venv_made.startswith(
        "venv "
    )
    assert "--no-index" in installed
    (file,) = (project.parent / "store").glob("environments/*/requirements.txt")
    assert file.read_text() == "wanted==2\n"  # uv has resolved what lib wants


def test_packages_of_another_interpreter_come_before_those_of_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "prefix", "/made")
    monkeypatch.setattr(sys, "path", ["/made/lib/site-packages", "/lib", "/below/site-packages"])
    found = _search_path(["/mine", "/lib", "/client/site-packages"])
    assert found == [
        "/mine",
        "/lib",
        "/made/lib/site-packages",
        "/client/site-packages",
        "/below/site-packages",
    ]


CONDA = """#!/bin/bash
echo "$@" >> $ASKED
case $2 in
export) printf 'name: mine\nchannels:\n- main\ndependencies:\n- python\nprefix: /x\n';;
create) for last in "$@"; do :; done; cp $last $ASKED.yml; folder=${@: -3:1}
    PYTHON -m venv --without-pip $folder; ln -s $folder/lib/python3.* $folder/lib/python3.1;  # as conda does
    eval "$THEN";;
esac
"""


def test_a_conda_environment_is_made_again_on_hosts(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = project / "asked"
    # stands for it, as it is not here: says what it is asked, and makes a venv
    conda = project / "conda"
    conda.write_text(CONDA.replace("PYTHON", sys.executable))
    conda.chmod(0o700)
    monkeypatch.setenv("ASKED", str(asked))
    monkeypatch.setenv("PATH", f"{project}{os.pathsep}{os.environ['PATH']}")
    text = CondaEnvironment(project).export()
    assert text == "channels:\n- main\ndependencies:\n- python\n"
    made = make(Wanted("", "", False, text))
    assert made.new and not make(Wanted("", "", False, text)).new
    exported, created = asked.read_text().splitlines()
    assert exported == f"env export --prefix {project}"
    assert created.startswith(f"env create --yes --quiet --prefix {folder_of(made)} --file ")
    assert Path(f"{asked}.yml").read_text() == text
    (project / "environment.yml").write_text(text)
    assert make(Wanted("environment.yml", "", False)) == made._replace(new=False)
    monkeypatch.setenv("THEN", "rm $folder/bin/python")
    with pytest.raises(EnvironmentFailed, match="has no Python: it needs python=3"):
        make(Wanted("", "", False, "without"))
    monkeypatch.setenv(
        "THEN",
        "rm $folder/bin/python; printf '#!/bin/sh\\necho 2.7 /x\\n' > $folder/bin/python; chmod +x"
        " $folder/bin/python",
    )
    with pytest.raises(EnvironmentFailed, match="has Python 2.7: it needs python=3"):
        make(Wanted("", "", False, "older"))
    monkeypatch.setenv("PATH", "/none")
    with pytest.raises(EnvironmentFailed, match="conda is not on the PATH"):
        make(Wanted("", "", False, "another"))
    with pytest.raises(EnvironmentFailed, match="conda can't be asked"):
        CondaEnvironment(project).export()
