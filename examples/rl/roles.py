"""All roles: where they run, and how they are started."""

import pickle
import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import Tensor

from monarch.actor import HostMesh, ProcMesh, this_proc
from monarch.config import configure
from monarch.elastic import ElasticGroup, StateBoard
from monarch.job import DEFAULT_JOB_PATH, JobTrait, LocalJob, ProcessJob, SlurmJob, SSHJob
from monarch.service import Service
from monarch.supervision import OneForOne

from .generator import Generator
from .plan import Plan
from .rollouts import Buffer, Judges, Rollouts, RolloutState, Writers
from .trainer import Training
from .verifier import Verifier

PRELOAD = ["torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.checkpoint"]


def hosts_of(plan: Plan) -> tuple[HostMesh, HostMesh]:
    """Of trainers, with what is beside them, and of generators, with verifiers."""
    each = dict.fromkeys(("trainers", "generators"), 1)
    preload = ",".join(PRELOAD)
    # this package is there at the same path
    setup = [f"cd {shlex.quote(str(Path(__file__).parents[2]))}; export MONARCH_PRELOAD={preload}"]
    job: JobTrait
    if plan.hosts == "slurm":
        job = SlurmJob(each, time_limit="1:00:00", setup=setup)
    elif plan.hosts == "ssh":
        first, *others = plan.nodes.split(",")
        nodes = {"trainers": [first], "generators": others or [first]}
        job = SSHJob(ssh_args=shlex.split(plan.ssh_args), hosts=nodes, setup=setup)
    elif plan.hosts == "kubernetes":
        from monarch.job.kubernetes import ImageSpec, KubernetesJob

        job = KubernetesJob(plan.namespace, controller="Job", idle_limit=600)
        for name in each:
            job.add_mesh(name, 1, image_spec=ImageSpec(plan.image))
    elif plan.hosts == "processes":
        job = ProcessJob(each, env={"MONARCH_PRELOAD": preload})
    elif plan.hosts == "local":
        job = LocalJob(tuple(each))
    else:
        raise ValueError(f"hosts={plan.hosts!r}: see Plan")
    is_here = isinstance(job, (LocalJob, ProcessJob))  # and ends with this program
    state = job.state(cached_path=None if is_here else DEFAULT_JOB_PATH)
    return state.trainers, state.generators


@dataclass
class Roles:
    """Handles to what runs."""

    generators: Writers
    verifiers: Judges
    store: ProcMesh  # the process of the buffer
    buffer: Buffer
    rollouts: Rollouts
    trainers: ElasticGroup


def start(plan: Plan, base: dict[str, Tensor]) -> Roles:
    """Start all roles; trainers begin with `Roles.trainers.run()`."""
    # on a machine that has more to do, nothing that is slow is lost
    configure(preload=PRELOAD, host_spawn_ready_timeout="120s", channel_reconnect_timeout="15s")
    trainers, generators = hosts_of(plan)
    # region services
    board = this_proc().spawn("board", StateBoard)
    store = trainers.spawn_procs(restart=OneForOne(max_restarts=5, within=600))
    room = plan.groups * (plan.max_age + 3)
    buffer = Buffer(store, room, consume=True, max_age=plan.max_age)
    service = partial(Service, generators, idempotent=True, max_restarts=20, patience=600)
    writers = service(Generator, (plan, base, board), replicas=plan.generators)
    judges = service(Verifier, replicas=plan.verifiers)
    begun = saved(plan.checkpoint)
    if begun.buffer is not None:
        buffer.load(begun.buffer).get()
    rollouts = this_proc().spawn("rollouts", Rollouts, plan, begun, writers, judges, buffer)
    rollouts.mind.broadcast()
    training = partial(Training, plan, base, buffer, board, rollouts)
    elastic = partial(ElasticGroup, ranks=plan.trainers, checkpoint=plan.checkpoint)
    group = elastic(trainers, training, checkpoint_every=plan.checkpoint_every)
    # endregion
    return Roles(writers, judges, store, buffer, rollouts, group)


def saved(folder: Path | None) -> RolloutState:
    """What is beside the last whole checkpoint of the trainers."""
    begun = RolloutState()
    steps = sorted(folder.glob("step-*")) if folder is not None else []
    if steps and (path := steps[-1].with_name(steps[-1].name.replace("step", "roles"))).exists():
        begun = pickle.loads(path.read_bytes())
    return begun
