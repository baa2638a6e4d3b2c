"""Several hosts: workers, attaching them, what the errors look like, letting go."""

import os
import subprocess
import sys
import tempfile

from monarch.actor import Actor, HostMesh, attach_to_workers, current_rank, endpoint
from monarch.config import configured
from monarch.trust import make_secret

WORKER = (
    "import sys; from monarch.actor import run_worker_loop_forever;"
    " run_worker_loop_forever(address=sys.argv[1])"
)


class Trainer(Actor):
    @endpoint
    def where(self) -> int:
        return current_rank()["hosts"]


def start_workers(folder: str, count: int) -> tuple[list[str], list[subprocess.Popen[bytes]]]:
    addresses = [f"ipc://{folder}/worker{index}" for index in range(count)]
    return addresses, [
        subprocess.Popen([sys.executable, "-c", WORKER, address]) for address in addresses
    ]


def use(addresses: list[str]) -> HostMesh:
    # region attach
    hosts = attach_to_workers(workers=addresses, name="trainers")
    assert hosts.sizes == {"hosts": 2}
    hosts.initialized.get()  # or just go on: what can't be reached shows in the first result, too

    procs = hosts.spawn_procs({"gpus": 4})
    trainers = procs.spawn("trainers", Trainer)
    where = trainers.where.call().get()
    assert where[{"hosts": 1, "gpus": 3}] == 1
    # endregion
    return hosts


def unreachable(folder: str) -> None:
    # region unreachable
    with configured(mesh_attach_config_timeout="1s"):
        hosts = attach_to_workers(workers=[f"ipc://{folder}/no_worker"])
        try:
            hosts.initialized.get()
        except RuntimeError as error:
            assert "attach failed" in str(error) and "no_worker" in str(error)
    # endregion
    hosts.stop().get()


def main() -> None:
    os.environ["MONARCH_SECRET"] = make_secret()
    with tempfile.TemporaryDirectory() as folder:
        unreachable(folder)
        addresses, workers = start_workers(folder, 2)
        try:
            hosts = use(addresses)
            # region end
            hosts.stop().get()  # what was spawned there ends; the workers wait for the next program
            hosts = attach_to_workers(workers=addresses)
            hosts.shutdown().get()  # the workers end, too
            # endregion
            assert [worker.wait() for worker in workers] == [0, 0]
        finally:
            for worker in workers:
                worker.terminate()


if __name__ == "__main__":
    main()
