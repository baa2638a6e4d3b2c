"""All roles: where they run, and how they are started."""

import os
import pickle
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from torch import Tensor

from monarch.actor import Actor, HostMesh, endpoint, this_host, this_proc
from monarch.config import configure
from monarch.elastic import ElasticGroup
from monarch.job import ProcessJob, SlurmJob, SSHJob
from monarch.service import Service
from monarch.supervision import OneForOne

from .generator import Generator, Generators
from .model import ModelPlan
from .rollouts import Buffer, RolloutPlan, Rollouts, RolloutState
from .trainer import Training, TrainPlan
from .verifier import Verifier, Verifiers
from .weights import Board

PRELOAD = ["torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.checkpoint"]
HOSTS = ("local", "processes", "slurm", "ssh", "kubernetes")


@dataclass(frozen=True)
class Plan:
    """All that decides what a run does."""

    model: ModelPlan
    rollout: RolloutPlan
    train: TrainPlan
    imitation: int = 100  # steps
    trainers: int = 2
    generators: int = 2
    verifiers: int = 1
    hosts: str = "local"
    nodes: list[str] = field(default_factory=list)  # for ssh: trainers on the first, if several
    image: str = ""  # for kubernetes


class Pid(Actor):
    """For the drill: the process of what is no actor of ours."""

    @endpoint
    def pid(self) -> int:
        return os.getpid()


# region hosts
def hosts_of(plan: Plan) -> tuple[HostMesh, HostMesh]:
    """Of trainers, with what is beside them, and of generators, with verifiers."""
    names, environment = ("trainers", "generators"), {"MONARCH_PRELOAD": ",".join(PRELOAD)}
    if plan.hosts == "processes":
        job = ProcessJob(dict.fromkeys(names, 1), env=environment)
        state = job.state(cached_path=None)
    elif plan.hosts == "slurm":
        setup = [f"export {name}={value}" for name, value in environment.items()]
        slurm = SlurmJob(dict.fromkeys(names, 1), time_limit="1:00:00", setup=setup)
        state = slurm.state()
    elif plan.hosts == "ssh":
        ssh = SSHJob(hosts={"trainers": plan.nodes[:1], "generators": plan.nodes[1:] or plan.nodes})
        state = ssh.state()
    elif plan.hosts == "kubernetes":
        from monarch.job.kubernetes import ImageSpec, KubernetesJob

        pods = KubernetesJob("default", controller="Job", idle_limit=600)
        for name in names:
            pods.add_mesh(name, 1, image_spec=ImageSpec(plan.image))
        state = pods.state()
    else:
        return this_host(), this_host()
    return state.trainers, state.generators


# endregion


@dataclass
class Roles:
    """Handles to what runs."""

    hosts: tuple[HostMesh, HostMesh]
    generators: Generators
    verifiers: Verifiers
    buffer: Buffer
    buffer_pid: Pid
    board: Board
    rollouts: Rollouts
    trainers: ElasticGroup


def start(plan: Plan, base: dict[str, Tensor]) -> Roles:
    """Start all roles; trainers begin with `Roles.trainers.run()`."""
    configure(preload=PRELOAD, host_spawn_ready_timeout="120s")
    trainers, generators = hosts = hosts_of(plan)
    again = OneForOne(max_restarts=5, within=600)
    rollout = plan.rollout
    # region services
    place = trainers.slice(hosts=0) if "hosts" in trainers.extent.labels else trainers
    board = place.spawn_procs(restart=again).spawn("board", Board)
    kept = place.spawn_procs(restart=again)
    buffer = Buffer(
        kept, rollout.groups * (rollout.max_age + 3), consume=True, max_age=rollout.max_age
    )
    writers = Service(
        generators,
        Generator,
        (plan.model, base, board),
        replicas=plan.generators,
        idempotent=True,
        max_restarts=20,
    )
    judges = Service(generators, Verifier, replicas=plan.verifiers, idempotent=True)
    begun = saved(plan.train.checkpoint)
    if begun.buffer is not None:
        buffer.load(begun.buffer).get()
    rollouts = this_proc().spawn("rollouts", Rollouts, rollout, begun, writers, judges, buffer)
    make = partial(Training, plan.train, plan.model, rollout, base, (buffer, board, rollouts))
    group = ElasticGroup(
        trainers,
        make,
        ranks=plan.trainers,
        checkpoint=plan.train.checkpoint,
        checkpoint_every=plan.train.checkpoint_every,
    )
    # endregion
    return Roles(hosts, writers, judges, buffer, kept.spawn("pid", Pid), board, rollouts, group)


def saved(folder: Path | None) -> RolloutState:
    """What is beside the last whole checkpoint of the trainers."""
    if folder is not None and folder.is_dir():
        steps = sorted(each.name.removeprefix("step-") for each in folder.glob("step-*"))
        if steps and (path := folder / f"roles-{steps[-1]}").exists():
            state: RolloutState = pickle.loads(path.read_bytes())
            return state
    return RolloutState()
