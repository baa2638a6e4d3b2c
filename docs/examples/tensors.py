"""Distributed tensors: each region is a piece of docs/tensors.md."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard

from monarch import (
    OpaqueRef,
    Stream,
    coalescing,
    fetch_shard,
    get_active_mesh,
    inspect,
    no_mesh,
    reduce,
    reduce_,
    remote,
    slice_mesh,
)
from monarch.actor import Actor, endpoint, this_host
from monarch.config import configure
from monarch.parallel.pipelining import PipelineParallelism, get_parameter_udf
from monarch.tensor_engine import (
    OpaqueModule,
    RemoteException,
    TensorError,
    distribute,
    record,
    remote_generator,
)

configure(preload=["torch._dynamo"])  # DTensor imports it on every rank otherwise

# region first
procs = this_host().spawn_procs(per_host={"hosts": 2, "gpus": 2})
with procs.activate() as mesh:
    x = torch.ones(2, 3) * mesh.rank("gpus")  # on four ranks: zeros where gpus=0, ones where gpus=1
    y = (x + 1).sum()
    assert y.shape == ()  # known at once
    assert inspect(y, hosts=0, gpus=1).item() == 12.0  # values: when asked for
# endregion

# region mesh
with procs.activate() as mesh:
    first = mesh.slice(hosts=0)
    with first.activate():
        assert get_active_mesh() is first
        z = torch.zeros(4)  # on two ranks
        with no_mesh.activate():
            local = torch.zeros(4)  # here
    assert mesh.slice(hosts=0) is first  # the same ranks and labels: the same mesh
# endregion

# region fetch
with procs.activate():
    loss = torch.rand(())
    futures = [fetch_shard(loss * step) for step in range(10)]  # many may be under way
    values = [future.get() for future in futures]
with no_mesh.activate():
    assert torch.stack(values).shape == (10,)
# endregion

# region mistake
with procs.activate():
    try:
        torch.zeros(4) + values[0]
    except (TensorError, RuntimeError) as error:
        assert "ERROR_0: LOCAL_TENSOR" in str(error)
# endregion

# region failure
with procs.activate() as mesh:
    table = torch.zeros(3)
    picked = table.index_select(0, mesh.rank("gpus").reshape(1) * 5)  # no such element where gpus=1
    later = picked + 1
    try:
        inspect(later)
    except RemoteException as error:
        assert error.rank == 1
        # the operation that failed, this file and its line, the worker's traceback
        assert "index_select" in str(error)
    assert inspect(table + 1).tolist() == [1.0, 1.0, 1.0]  # what does not depend on it goes on
# endregion

# region reduce
with procs.activate() as mesh:
    x = torch.ones(2) + mesh.rank("gpus")
    assert inspect(reduce(x, "gpus", "sum")).tolist() == [3.0, 3.0]
    assert inspect(reduce(x, "gpus", "stack")).shape == (2, 2)
    there = slice_mesh(x, hosts=0).to_mesh(mesh.slice(hosts=1))
    assert there.mesh is mesh.slice(hosts=1)
# endregion


# region remote
@remote(propagate=lambda x, path: torch.empty_like(x))
def add_file(x: torch.Tensor, path: str) -> torch.Tensor:
    with open(path) as file:
        return x + len(file.read())


with procs.activate():
    x = add_file(torch.zeros(2), __file__)
    assert inspect(x).tolist()[0] > 1000
    pids = remote("os.getpid").call().get()  # what each rank returns, as a ValueMesh
    assert len(set(pids.values())) == 4
# endregion


# region actor
class Checkpoint(Actor):
    @endpoint
    def save(self, weights: torch.Tensor) -> float:
        return float(weights.norm())  # the rank's own tensor, not a copy


with procs.activate():
    checkpoints = procs.spawn("checkpoints", Checkpoint)
    norms = checkpoints.save.call(torch.ones(4)).get()
    assert set(norms.values()) == {2.0}
# endregion

# region opaque
with procs.activate():
    torch.manual_seed(0)
    there = OpaqueModule("torch.nn.Linear", 4, 1)  # its graph, too, is on the ranks
    loss = there(torch.ones(2, 4), propagator=lambda self, x: torch.empty(2, 1)).sum()
    loss.backward()
    assert inspect(there.parameters()[0].grad).tolist() == [[2.0] * 4]
# endregion


# region pipe
def load(pipe: Any, size: int) -> None:  # runs in a process of its own beside each rank
    for step in range(3):
        pipe.send(torch.full((size,), float(step)))


@remote_generator(load)
def batches(pipe: Any, size: int) -> Iterator[torch.Tensor]:  # what arrives, as fakes
    for _ in range(3):
        yield torch.empty(size)


with procs.activate():
    pipe = batches(2)
    assert [inspect(pipe.recv()).tolist() for _ in range(3)] == [[0, 0], [1, 1], [2, 2]]
    pipe.drop()
# endregion


# region dtensor
@remote(propagate=lambda x, mesh: torch.empty(4, 2))
def columns(x: torch.Tensor, mesh: Any) -> torch.Tensor:
    sharded = DTensor.from_local(x, mesh, [Shard(0), Replicate()])  # shape (4, 4)
    # comes back as the rank's part of it
    return sharded.redistribute(placements=[Replicate(), Shard(1)])


with procs.activate() as mesh:
    x = torch.arange(8.0).reshape(2, 4) + 8 * mesh.rank("hosts")
    y = columns(x, mesh.torch_mesh())
    assert inspect(y, hosts=0, gpus=1).tolist() == [
        [2.0, 3.0],
        [6.0, 7.0],
        [10.0, 11.0],
        [14.0, 15.0],
    ]
# endregion

# region engines
others = this_host().spawn_procs(per_host={"hosts": 2, "gpus": 2})  # other processes
with procs.activate() as mesh:
    moved = (torch.ones(2) * mesh.rank("gpus")).to_mesh(others)
    assert inspect(moved + 1, hosts=0, gpus=1).tolist() == [2.0, 2.0]
others.stop().get()
# endregion

# region train
with procs.activate():
    torch.manual_seed(0)  # on all ranks
    net = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        batch = torch.randn(8, 4)
        net(batch).pow(2).mean().backward()
        for parameter in net.parameters():
            reduce_(parameter.grad, ("hosts", "gpus"), "avg")
        optimizer.step()
    state = inspect(net.state_dict())
# endregion

# region streams
communication = Stream("communication")
with procs.activate():
    weight, gradient = torch.ones(4), torch.ones(4)
    lent, borrow = communication.borrow(gradient, mutable=True)
    with communication.activate():
        reduce_(lent, ("hosts", "gpus"), "sum")
    del lent  # the last use: from here on the other stream waits for nothing more
    activations = weight.sigmoid()  # runs while the gradient travels
    borrow.drop()
    weight -= 0.1 * gradient
    assert inspect(gradient).tolist() == [4.0] * 4
# endregion

# region record
with procs.activate():
    one = torch.ones(4)

    @record
    def many(x: torch.Tensor) -> torch.Tensor:
        for _ in range(100):
            x = x + one
        return x

    x = torch.zeros(4)
    for _ in range(10):
        x = many(x)  # runs twice, and is replayed eight times
    with coalescing():
        y = x + 1
        z = y * 2  # both go out when the block ends
    assert inspect(z).tolist() == [2002.0] * 4
# endregion
# region data
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.randn(6, 4)), batch_size=3
)
for batch in loader:  # here, with no mesh active
    with procs.activate():
        (x,) = distribute(batch)  # all ranks get a copy; with split="gpus" each gets its part
        loss = net(x).pow(2).mean()
with procs.activate():
    # a state that was fetched, or that `torch.load` has read
    net.load_state_dict(distribute(state))
# endregion

# region pipeline
with procs.activate() as mesh:
    meshes = [mesh.slice(hosts=0), mesh.slice(hosts=1)]
stages: list[list[nn.Module]] = [[nn.Linear(4, 8), nn.Tanh()], [nn.Linear(8, 1)]]
pipeline = PipelineParallelism(
    meshes, stages, batch_size=8, microbatch_size=2, loss_fn=nn.functional.mse_loss
)
pipeline.initialize()  # moves the parameters of each stage to its mesh
pipeline.configure_optimizers(0.1, lambda rate, parameters: torch.optim.SGD(parameters, lr=rate))
losses = [pipeline.run(torch.ones(8, 4), torch.ones(8, 1)) for _ in range(5)]
assert inspect(losses[4]) < inspect(losses[0])
# endregion


# region opaque-stages
@remote(propagate=lambda size: OpaqueRef(None))
def first_stage(size: int) -> OpaqueRef:  # runs where the stage lives
    return OpaqueRef(nn.Sequential(nn.Linear(4, size), nn.Tanh()))


@remote(propagate="inspect")
def step(stage: OpaqueRef) -> None:
    torch.optim.SGD(stage.value.parameters(), lr=0.1).step()
    stage.value.zero_grad()


with meshes[0].activate():
    torch.manual_seed(0)  # on its ranks
    own = first_stage(8)
with meshes[1].activate():
    torch.manual_seed(0)
    there = OpaqueModule("torch.nn.Linear", 8, 1)
    sgd = torch.optim.SGD(there.parameters(), lr=0.1)
pipeline = PipelineParallelism(
    meshes, [[own], [there]], batch_size=8, microbatch_size=2, loss_fn=nn.MSELoss()
)
for _ in range(5):
    pipeline.run(torch.ones(8, 4), torch.ones(8, 1))
    step(own)  # its gradients are on the ranks
    sgd.step()  # and these are here
    sgd.zero_grad()
weight = get_parameter_udf(own, "0.weight", (8, 4))  # shares the memory of the parameter
assert weight.mesh is meshes[0] and inspect(weight).isfinite().all()
# endregion


procs.stop().get()
