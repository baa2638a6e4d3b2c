"""The admin interface as jobs open it, and the command `monarch admin`."""

from __future__ import annotations

import json
import socket
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.admin import Asker
from helpers.terminals import killed_after, running
from helpers.waiting import wait_until
from monarch.admin.guard import SESSION

if TYPE_CHECKING:
    from helpers.jobs import Home

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

DESCRIBED = """
    import os, sys, time
    from monarch.actor import Actor, endpoint
    from monarch.job import JobError, MeshAdminConfig, ProcessJob

    class Trainer(Actor):
        @endpoint
        def say(self, text):
            print(text, flush=True)

    def started(**how):
        job = ProcessJob({"trainers": 1}).enable_admin(**how)
        state = job.state(None)
        return job, state, state.trainers.spawn_procs({"gpus": 2}, name="ranks").spawn("trainer", Trainer)
    """

SERVES = (
    DESCRIBED
    + """
    if __name__ == "__main__":
        job, state, trainers = started()
        trainers.say.call("step one").get()
        assert os.environ["MONARCH_ADMIN_URL"] == state.admin_url
        assert job.state(None).admin_url == state.admin_url
        print("at", os.getpid(), state.admin_url, flush=True)
        def wait_for(name):
            while not os.path.exists(name):
                time.sleep(0.05)

        wait_for("second step")
        trainers.say.call("step two").get()
        wait_for("enough")
        job.kill()
    """
)


@pytest.mark.timeout(180)
def test_a_job_has_an_interface_that_ends_with_its_program(home: Home) -> None:
    first, second = home.start(SERVES), home.start(SERVES)
    urls = []
    for process in (first, second):
        assert process.stdout is not None
        with killed_after(90, process):
            said = next(line for line in process.stdout if line.startswith("at ")).split()
        urls.append((said[1], said[2]))
    assert urls[0][1] != urls[1][1]  # two jobs on a machine have two ports
    (pid, url), _ = urls
    token = home.monarch("admin", pid, "--token").strip()
    asker = Asker(url, token)
    procs = [
        node["properties"]["Proc"]["mesh_rank"]
        for node in asker.walk()
        if "Proc" in node["properties"]
    ]
    assert {"client", "ranks[0]", "ranks[1]"} <= set(procs)
    assert asker.raw("GET", "/v1/meshes")[0] == 200

    found = wait_until(
        lambda: (got := asker.get("/v1/logs?mesh=ranks&grep=step%20one"))["lines"] and got,
        what="lines reach the files",
    )
    assert sorted((line["rank"], line["text"]) for line in found["lines"]) == [
        (0, "step one"),
        (1, "step one"),
    ]
    assert asker.get("/v1/logs?rank=gpus%3D1&grep=one&limit=1")["lines"][0]["rank"] == 1
    assert asker.get("/v1/logs?until=1000")["lines"] == []
    assert asker.get("/v1/logs?grep=%28")["lines"] == []  # a text, no pattern
    assert asker.error("GET", "/v1/logs?since=yesterday")[:2] == (400, "bad_request")
    followed = asker.events("/v1/logs/follow?grep=step%20two")
    lines: list[Any] = []
    (home.folder / "second step").touch()
    while len(lines) < 2:
        name, data = next(followed)
        assert name == "lines"
        lines += data
    assert sorted(line["rank"] for line in lines) == [0, 1] and {
        line["text"] for line in lines
    } == {"step two"}
    followed.close()

    (home.folder / "enough").touch()
    for process in (first, second):
        out, _ = process.communicate(timeout=90)
        assert process.returncode == 0, out
    with pytest.raises(OSError):
        asker.raw("GET", "/v1/root")


DASHBOARD = (
    DESCRIBED
    + """
    import urllib.request
    from monarch.job import TelemetryConfig

    if __name__ == "__main__":
        port = int(sys.argv[1])
        job = ProcessJob({"trainers": 1}).enable_telemetry(TelemetryConfig(include_dashboard=True, dashboard_port=port))
        state = job.state(None)
        assert state.dashboard_url.startswith(f"{state.admin_url}/login?code=")
        assert port == 0 or state.admin_url == f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(state.dashboard_url) as page:
            print("shown:", b'src="assets/app.js"' in page.read())
        with urllib.request.urlopen(state.admin_url + "/assets/app.js") as script:
            print("script:", script.headers.get_content_type())
        job.kill()
    """
)


def test_a_job_has_a_dashboard_to_which_its_state_is_a_link(home: Home) -> None:
    printed = home.run(DASHBOARD, "0")
    assert "shown: True" in printed and "script: text/javascript" in printed


def test_a_dashboards_port_that_is_taken_is_an_error_at_once(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        said = home.run(f"""
            from monarch.job import JobError, ProcessJob, TelemetryConfig
            try:
                job = ProcessJob({{"trainers": 1}}).enable_telemetry(TelemetryConfig(include_dashboard=True, dashboard_port={port}))
                job.state(None)
            except JobError as error:
                print("refused:", error)
            """)
    assert f"refused: the admin interface can't listen at 127.0.0.1:{port}" in said


TAKEN = (
    DESCRIBED
    + """
    if __name__ == "__main__":
        for address in (sys.argv[1], "0.0.0.0:0", "nowhere"):
            try:
                started(admin_addr=address)
            except JobError as error:
                print("refused:", error)
    """
)


def test_a_port_that_is_taken_and_an_address_without_tls_are_errors_at_once(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        printed = home.run(TAKEN, address)
    assert f"refused: the admin interface can't listen at {address}" in printed
    assert (
        "refused: the admin interface can't listen at 0.0.0.0:0, which other machines reach,"
        " without TLS" in printed
    )
    assert "refused: the address of the admin interface is" in printed


PLAIN = """
    import sys
    from monarch.actor import this_host
    from helpers.actors import Echo

    if __name__ == "__main__":
        echo = this_host().spawn_procs({"gpus": 2}, name="trainers").spawn("echo", Echo)
        echo.say.call(1).get()
        print("up", flush=True)
        sys.stdin.read()
    """


def test_the_command_serves_a_program_without_an_interface_until_that_ends(tmp_path: Path) -> None:
    with running(textwrap.dedent(PLAIN), tmp_path) as program:
        program.wait_for("up")
        with program.start_monarch("admin", str(program.pid), "--json") as command:
            assert command.stdout is not None
            with killed_after(60, command):
                link = json.loads(command.stdout.readline())["link"]
            url, _, code = link.partition("/login?")
            browser = Asker(url)
            session = browser.post(f"/login?{code}")["session"]
            assert browser.raw("POST", f"/login?{code}")[0] == 401  # once
            assert browser.raw("GET", "/v1/root")[0] == 401
            assert browser.raw("GET", "/v1/root", headers={SESSION: session})[0] == 200
            assert program.end() == 0
            with killed_after(60, command):
                assert command.wait() == 0
