"""Profiles of real programs: what is on the tracks, and who is missing."""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.perfetto_traces import Shown, shown_by, tracks_of
from helpers.processes import stopped
from helpers.terminals import running
from helpers.waiting import PATIENCE
from monarch.actor import Actor, endpoint
from monarch.config import configured
from monarch.telemetry import Profile, span, step

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults
    from helpers.jobs import Home

pytestmark = pytest.mark.processes("telemetry of several processes")

pytest.importorskip("perfetto")


class Trains(Actor):
    @endpoint
    def train(self, number: int) -> int:
        step(number)
        with span("forward", batch=number):
            return os.getpid()

    @endpoint
    def end(self, number: int) -> None:
        os.kill(os.getpid(), number)


class Drives(Actor):
    @endpoint
    def drive(self, trainers: Any, count: int) -> None:
        for number in range(count):
            trainers.train.call(number).get()


def recorded(profile: Profile, tmp_path: Path) -> list[Shown]:
    return shown_by(profile.export_perfetto_trace(tmp_path / "t.pftrace"))


def test_a_program_on_several_hosts_has_its_tracks_slices_and_arrows(
    spawn_far: Spawn, tmp_path: Path
) -> None:
    with configured(telemetry="sampled"):
        procs = spawn_far(2, name="traced")
        trainers = procs.spawn("trainer", Trains)
        driver = procs.slice(hosts=0, gpus=0).spawn("driver", Drives)
    driver.drive.call_one(trainers, 1).get(timeout=PATIENCE)  # is before the window
    with Profile() as profile:
        driver.drive.call_one(trainers, 3).get(timeout=PATIENCE)
    found = recorded(profile, tmp_path)
    assert not [who for who in profile.missing if "traced" in who]

    handled = [each for each in found if each.category == "message" and each.name == "train"]
    ranks = trainers.size()
    assert len(handled) == ranks * 3
    assert {each.track.split(" / ")[-1] for each in handled} == {
        f"actor trainer[{rank}]" for rank in range(ranks)
    }
    procs_of = {each.track.rpartition(" / ")[0] for each in handled}
    assert len({track.partition(" / ")[0] for track in procs_of}) == ranks // 2  # hosts
    assert {track.partition(" / ")[2].partition(" (process ")[0] for track in procs_of} == {
        f"proc traced[{rank}]" for rank in range(ranks)
    }
    assert {"driver[0]"} == {each.fields["from"] for each in handled}

    sends = [each for each in found if each.category == "send" and each.name == "train"]
    assert len(sends) == 3 and all(each.track.endswith("/ actor driver[0]") for each in sends)
    for number, send in enumerate(sends):
        targets = [each for each in handled if set(each.ends) & set(send.starts)]
        assert {each.track for each in targets} == {each.track for each in handled} and len(
            targets
        ) == ranks
        # one machine has one clock
        assert all(each.begin >= send.begin - 1_000 for each in targets), number

    spans = [each for each in found if each.category == "span"]
    # in the message
    assert [(each.name, each.depth) for each in spans] == [("forward", 1)] * 3 * ranks
    assert sorted(each.fields["batch"] for each in spans) == sorted([0, 1, 2] * ranks)
    steps = [each for each in found if each.track.endswith("trainer[3] / steps")]
    assert [each.name for each in steps] == [
        "step 0",
        "step 0",
        "step 1",
        "step 2",
    ]  # the first goes on into the window
    assert all(before.end == after.begin for before, after in itertools.pairwise(steps))


def test_a_flood_is_recorded_whole_while_a_profile_runs_and_sampled_afterwards(
    spawn: Spawn,
) -> None:
    with configured(telemetry="sampled", telemetry_memory="64 MiB"):
        trainers = spawn(1).spawn("flooded", Trains)

    def flood() -> None:
        for number in range(6_000):
            trainers.train.broadcast(number)
        trainers.train.call_one(0).get()

    flood()
    with Profile() as profile:
        with Profile():
            pass  # its end is not the end of the other one
        flood()
    assert profile.timeline is not None
    found = [
        each
        for each in shown_by(profile.timeline.content)
        if each.name == "train" and each.category == "message"
    ]
    # the first may be what was under way
    assert not [each for each in found[100:] if "sample_weight" in each.fields]
    assert len(found) > 5_900


def test_a_rank_that_dies_meanwhile_is_named_and_the_others_are_there(
    spawn: Spawn, faults: Faults, tmp_path: Path
) -> None:
    with configured(telemetry="sampled"):
        trainers = spawn({"gpus": 2}, name="halved").spawn("half", Trains)
    trainers.train.call(0).get(timeout=PATIENCE)
    with Profile() as profile:
        trainers.train.call(1).get(timeout=PATIENCE)
        trainers.slice(gpus=1).end.broadcast(signal.SIGKILL)
        faults.wait_for(1)
    found = recorded(profile, tmp_path)
    [why] = [why for who, why in profile.missing.items() if who == "halved[1]"]
    assert why.startswith("has ended, most of what it did is lost: ") and "SIGKILL" in why
    alive = [
        each.track.split(" / ")[-1]
        for each in found
        if each.name == "train" and each.category == "message"
    ]
    assert "actor half[0]" in alive
    [last] = [each for each in found if each.name == "end" and each.category == "message"]
    # what its black box has kept
    assert last.track.endswith(" / actor half[1]") and last.fields["unfinished"]
    assert [
        track
        for track in tracks_of(tmp_path / "t.pftrace")
        if "proc halved[1]" in track and "ended" in track
    ]


def test_a_proc_that_was_spawned_meanwhile_is_named_if_its_messages_are_sampled(
    spawn: Spawn,
) -> None:
    with configured(telemetry="sampled"):
        empty = spawn(1, name="empty")
        empty.initialized.get(timeout=PATIENCE)
        with Profile() as profile:
            quiet = spawn(1, name="quiet").spawn("quiet", Trains)
            quiet.train.call_one(0).get(timeout=PATIENCE)
            for procs in (empty, spawn(1, name="late")):
                flooded = procs.spawn("flooded", Trains)
                for number in range(6_000):
                    flooded.train.broadcast(number)
                flooded.train.call_one(0).get()
    said = {
        who: why
        for who, why in profile.missing.items()
        if who.startswith(("empty[", "quiet[", "late["))
    }
    assert list(said) == ["late[0]"] and said["late[0]"].startswith(
        "was spawned after the profile had begun"
    )


def test_a_process_without_telemetry_and_one_that_stands_still_are_named(spawn: Spawn) -> None:
    plain = spawn(1, name="plain").spawn("plain", Trains)
    still = spawn(1, name="stopped").spawn("stopped", Trains)
    pid = still.train.call_one(0).get(timeout=PATIENCE)
    plain.train.call_one(0).get(timeout=PATIENCE)
    profile = Profile()
    profile._limit = 0.5
    with stopped(pid), profile:
        pass
    said = {who.partition(" on ")[0]: why for who, why in profile.missing.items()}
    assert (
        said["plain[0]"].startswith("was spawned without telemetry")
        and "did not answer" in said["stopped[0]"]
    )


def test_a_profile_is_used_once_and_exported_after_its_end(spawn: Spawn, tmp_path: Path) -> None:
    spawn(1)
    exported: list[Path] = []
    with Profile(
        lambda profile: exported.append(profile.export_perfetto_trace(tmp_path / "a"))
    ) as profile:
        with pytest.raises(RuntimeError, match="when its block has ended"):
            profile.export_perfetto_trace()
    assert exported == [tmp_path / "a"] and tracks_of(tmp_path / "a")
    with pytest.raises(RuntimeError, match="was used already"), profile:
        pass
    for seconds in (0, -1, 1e9):
        with pytest.raises(ValueError, match="a profile takes more than 0"):
            Profile().record(seconds)
    raised = Profile(lambda profile: exported.append(tmp_path))
    with pytest.raises(KeyError), raised:
        raise KeyError
    assert len(exported) == 1 and raised.export_perfetto_trace(tmp_path / "b").stat().st_size > 0


PROGRAM = """
    import sys, threading
    from monarch.actor import Actor, endpoint, this_host

    class Trainer(Actor):
        @endpoint
        def step(self):
            pass

    if __name__ == "__main__":
        trainers = this_host().spawn_procs({"gpus": 2}, name="trainers").spawn("trainer", Trainer)
        trainers.step.call().get()
        print("go", flush=True)
        ended = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        while not ended.is_set():
            trainers.step.call().get()
            ended.wait(0.01)
    """


def test_the_command_profiles_a_running_program(tmp_path: Path) -> None:
    with running(PROGRAM, tmp_path, {"MONARCH_TELEMETRY": "sampled"}) as program:
        program.wait_for("go")
        path = tmp_path / "out.pftrace"
        shown = program.monarch(
            "profile", "-p", str(program.pid), "--seconds", "0.3", "-o", str(path), "--json"
        )
        assert shown.returncode == 0, shown.stderr
        told = json.loads(shown.stdout)
        assert (told["path"], told["actors"], told["procs"], told["missing"]) == (
            str(path),
            3,
            3,
            {},
        )
        assert shown.stderr.startswith("Collecting traces for 0.3...\nWrote ")
        assert " spans from 3 actors on 3 procs.\n" in shown.stderr
        found = shown_by(path)
        sends = {arrow for each in found if each.category == "send" for arrow in each.starts}
        handled = [each for each in found if each.category == "message"]
        assert handled and {arrow for each in handled for arrow in each.ends} == sends
        wrong = program.monarch("profile", "-p", str(program.pid), "--time", "soon")
        assert wrong.returncode == 2 and "duration must be a positive number" in wrong.stderr
        program.end()


JOB = """
    from monarch.actor import Actor, endpoint
    from monarch.job import ProcessJob

    class Trainer(Actor):
        @endpoint
        def step(self):
            pass

    if __name__ == "__main__":
        for made in (ProcessJob({"trainers": 1}), ProcessJob({"trainers": 1}).enable_telemetry()):
            try:
                made.profile()
            except RuntimeError as error:
                print(error)
        state = made.state()
        trainers = state.trainers.spawn_procs({"gpus": 2}, name="ranks").spawn("trainer", Trainer)
        with made.profile() as profile:
            trainers.step.call().get()
        print(profile.export_perfetto_trace("job.pftrace"), profile.missing)
        print(made.profile(seconds=0.05).timeline.actors, "actors")
        made.kill()
    """


def test_a_job_with_telemetry_is_profiled(home: Home) -> None:
    printed = home.run(JOB)
    assert printed.startswith(
        "profile() needs telemetry: call enable_telemetry() before state()\n"
        "this program has not connected to the job: call state() first\n"
    )
    assert "job.pftrace {}" in printed and " actors" in printed
    found = shown_by(home.folder / "job.pftrace")
    handled = [each for each in found if each.category == "message" and each.name == "step"]
    assert len(handled) == 2 and len({arrow for each in handled for arrow in each.ends}) == 2
