"""Waiting for the pods of a job.

It takes a list of them, a watch from there on, and what Kubernetes says of those that do not come.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ...errors import JobError
from ..base.waiting import Waiting
from .api import EVENTS, PODS, Api, ApiError, Resource
from .manifest import Mesh
from .pods import Pods, Trouble, is_ending

_WATCH = 1  # seconds of one watch, after which pods with trouble are looked at
_GONE = 410  # status of a watch from a version that is too old
_OUTAGE = 600.0  # seconds for which the API may not answer
_AGAIN = 0.5  # seconds before it is asked again then
_SHOWN_EVENTS = 5
_SHOWN_LINES = 12


def wait_for_pods(
    api: Api,
    meshes: Sequence[Mesh],
    who: str,
    timeout: float | None,
    schedule_timeout: float | None,
    controller: Resource,
) -> list[Pods]:
    """Wait until all pods of the meshes serve, and show those that are missing.

    Args:
        api: Where they are.
        meshes: The meshes.
        who: Waits, for people.
        timeout: Seconds in all; None is for ever.
        schedule_timeout: Seconds for which no node may have room for one; None is for ever.
        controller: What makes the pods of those meshes that the job makes.

    Raises:
        JobError: One of them is over, or a pod can't come up.
    """
    all_followed = [_Followed(mesh) for mesh in meshes]
    answered = time.monotonic()
    no_room_since: float | None = None
    with Waiting(who) as waiting:
        while True:
            outage = ""
            try:
                for followed in all_followed:
                    followed.follow(api)
                answered = time.monotonic()
            except ApiError as error:
                if not error.is_transient or time.monotonic() - answered > _OUTAGE:
                    raise
                outage = f"; {error}"
                time.sleep(_AGAIN)
            missing = [
                followed.pods for followed in all_followed if followed.pods.addresses() is None
            ]
            if not missing and not outage:
                return [followed.pods for followed in all_followed]
            troubles = [(pods.mesh, trouble) for pods in missing for trouble in pods.troubles()]
            for mesh, trouble in troubles:
                if trouble.is_hopeless:
                    raise JobError(_hopeless(api, mesh, trouble, "it does not come up"))
            no_room = [each for each in troubles if each[1].is_unschedulable]
            no_room_since = (no_room_since or waiting.seconds) if no_room else None
            limit = schedule_timeout
            if (
                no_room_since is not None
                and limit is not None
                and waiting.seconds - no_room_since >= limit
            ):
                why = f"no node has had room for it for {limit:g} s (schedule_timeout)"
                raise JobError(_hopeless(api, *no_room[0], why))
            state = "; ".join(describe(api, pods, controller) for pods in missing)
            rows = [(mesh.name, trouble.pod, trouble.text) for mesh, trouble in troubles]
            if waiting.is_longer_than(timeout):
                raise JobError(
                    f"{who} did not come up within {timeout:g} s (timeout): {state}. It was left as"
                    " it is: state() waits on, kill() ends it"
                )
            waiting.show(state + outage, rows)


def _hopeless(api: Api, mesh: Mesh, trouble: Trouble, why: str) -> str:
    lines = [f"mesh {mesh.name!r}: pod {trouble.pod!r}: {why}: {trouble.text}"]
    try:
        events = api.list(EVENTS, fieldSelector=f"involvedObject.name={trouble.pod}")["items"]
        lines += [
            f"  event: {each.get('reason')}: {each.get('message')}"
            for each in events[-_SHOWN_EVENTS:]
        ]
    except ApiError as error:
        lines.append(f"  its events: {error}")
    if trouble.container:
        for previous in (True, False):
            try:
                said = api.log(trouble.pod, trouble.container, _SHOWN_LINES, previous).splitlines()
            except ApiError:  # it never ran
                continue
            lines += [f"  | {line}" for line in said]
            if said:
                break
    left = "It was left as it is: kill() ends it, and so does the next state() that starts it anew"
    return "\n".join([*lines, left])


class _Followed:
    """The pods of a mesh, and the version of the list of pods up to which they are known."""

    def __init__(self, mesh: Mesh) -> None:
        self.pods = Pods(mesh)
        self._version = ""

    def follow(self, api: Api) -> None:
        """Watch them for a moment; it is over at once when all serve."""
        selector = self.pods.mesh.selector
        if not self._version:
            found = api.list(PODS, labelSelector=selector)
            self.pods.replace(found["items"])
            self._version = found["metadata"]["resourceVersion"]
        if self.pods.addresses() is not None:
            return
        try:
            for event, thing in api.watch(PODS, self._version, _WATCH, labelSelector=selector):
                self._version = thing["metadata"]["resourceVersion"]
                if event != "BOOKMARK":
                    self.pods.take(event, thing)
                    if self.pods.addresses() is not None:
                        return
        except ApiError as error:
            if error.status != _GONE:
                raise
            self._version = ""  # to be listed anew


def _without_pods(api: Api, pods: Pods, controller: Resource) -> str:
    """Explain why a mesh has no pod at all."""
    state = (
        f"{pods.mesh.name}: 0 of {pods.mesh.size} pods serve, there are none with"
        f" {pods.mesh.selector!r} yet"
    )
    try:
        maker = api.get(controller, pods.mesh.name) if pods.mesh.is_made else None
    except ApiError:  # it is no trouble that this can't be said
        maker = None
    if maker is not None and maker.get("spec", {}).get("suspend"):
        state += (
            f": {controller.plural} {pods.mesh.name!r} is suspended, as a queue has not admitted it"
        )
    return state


def describe(api: Api, pods: Pods, controller: Resource) -> str:
    """Explain which hosts of a mesh are missing, and why."""
    if not pods.all:
        return _without_pods(api, pods, controller)
    missing = pods.missing()
    state = f"{pods.mesh.name}: {pods.mesh.size - len(missing)} of {pods.mesh.size} pods serve"
    ending = [name for name, pod in pods.all.items() if is_ending(pod)]
    reasons = [f"{trouble.pod}: {trouble.text}" for trouble in pods.troubles()[:1]]
    reasons += [f"{', '.join(ending)} ending"] if ending else []
    ranks = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    return f"{state}, missing ranks {ranks}" + (f" ({'; '.join(reasons)})" if reasons else "")
