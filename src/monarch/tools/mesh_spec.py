"""The description of a server of `monarch.tools.commands`: meshes of hosts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

DEFAULT_PORT = 26600
"""Where workers listen on hosts that have an address of their own."""

_TAG = "monarch/meshes/{}/{}"  # of the metadata of an application: mesh and attribute
_TAGGED = ("host_type", "gpus", "port")


class AppState(IntEnum):
    """State of a server. The numbers are those of torchx."""

    UNSUBMITTED = 0
    SUBMITTED = 1
    PENDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    CANCELLED = 6
    UNKNOWN = 7


@dataclass
class MeshSpec:
    """A mesh of hosts.

    Attributes:
        name: Its name.
        num_hosts: How many.
        host_type: Of what kind, in words of the cluster.
        gpus: Of each host; -1 where that is not said.
        port: Where workers listen.
        hostnames: The machines, by rank, once they are there.
        image: The image of containers; empty without.
        state: Of its server.
    """

    name: str
    num_hosts: int
    host_type: str = ""
    gpus: int = -1
    port: int = DEFAULT_PORT
    hostnames: list[str] = field(default_factory=list)
    image: str = ""
    state: AppState = AppState.UNSUBMITTED


@dataclass
class ServerSpec:
    """A server: hosts that a scheduler has given.

    Attributes:
        name: Its name.
        scheduler: Which scheduler.
        state: Whether it runs.
        meshes: Its hosts.
        ui_url: Where to look at it, if the scheduler has such a page.
    """

    name: str
    scheduler: str
    state: AppState
    meshes: list[MeshSpec]
    ui_url: str | None = None

    @property
    def server_handle(self) -> str:
        """The handle for functions of `monarch.tools.commands`: ``slurm:///name``."""
        return f"{self.scheduler}:///{self.name}"

    @property
    def is_running(self) -> bool:
        """True if all of its hosts are there."""
        return self.state == AppState.RUNNING

    def get_mesh_spec(self, mesh_name: str) -> MeshSpec:
        """The mesh of that name.

        Raises:
            ValueError: There is none.
        """
        for mesh in self.meshes:
            if mesh.name == mesh_name:
                return mesh
        names = ", ".join(mesh.name for mesh in self.meshes)
        raise ValueError(f"server {self.name!r} has no mesh {mesh_name!r}; it has: {names}")

    def host0(self, mesh_name: str) -> str:
        """The machine of the first host of a mesh.

        Raises:
            ValueError: There is no such mesh, or it has no hosts yet.
        """
        hostnames = self.get_mesh_spec(mesh_name).hostnames
        if not hostnames:
            raise ValueError(
                f"mesh {mesh_name!r} of server {self.name!r} has no hosts yet: {self.state.name}"
            )
        return hostnames[0]

    def to_json(self) -> str:
        """As JSON, with states by their names."""
        plain = asdict(self)
        for each in (plain, *plain["meshes"]):
            each["state"] = AppState(each["state"]).name
        return json.dumps({**plain, "server_handle": self.server_handle}, indent=2)


def mesh_spec_from_str(mesh_spec_str: str) -> MeshSpec:
    """Read ``NAME:NUM_HOSTS:HOST_TYPE``, such as ``trainers:4:gpu.large``.

    Raises:
        ValueError: It is of another form.
    """
    name, _, rest = mesh_spec_str.partition(":")
    number, colon, host_type = rest.partition(":")
    if not name or not colon or not number.isdecimal() or ":" in host_type:
        raise ValueError(
            "a mesh is given as NAME:NUM_HOSTS:HOST_TYPE, such as trainers:4:gpu.large; got"
            f" {mesh_spec_str!r}"
        )
    return MeshSpec(name, int(number), host_type)


def tag_as_metadata(mesh_spec: MeshSpec, appdef: Any) -> None:
    """Note a mesh in the ``metadata`` of an application, for `mesh_spec_from_metadata`.

    Args:
        mesh_spec: The mesh.
        appdef: An ``AppDef`` of torchx, or what looks like one.
    """
    for attribute in _TAGGED:
        appdef.metadata[_TAG.format(mesh_spec.name, attribute)] = str(getattr(mesh_spec, attribute))


def mesh_spec_from_metadata(appdef: Any, mesh_name: str) -> MeshSpec | None:
    """The mesh that a role of an application stands for, with the metadata of `tag_as_metadata`.

    None if there is no such role.
    """
    for role in appdef.roles:
        if role.name == mesh_name:
            metadata = getattr(appdef, "metadata", None) or {}
            told = {
                each: metadata[tag]
                for each in _TAGGED
                if (tag := _TAG.format(mesh_name, each)) in metadata
            }
            gpus = getattr(getattr(role, "resource", None), "gpu", -1)
            gpus, port = int(told.get("gpus", gpus)), int(told.get("port", DEFAULT_PORT))
            kind, image = told.get("host_type", ""), getattr(role, "image", "")
            return MeshSpec(mesh_name, role.num_replicas, kind, gpus, port, image=image)
    return None
