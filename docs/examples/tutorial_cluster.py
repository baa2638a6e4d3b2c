"""Tutorial 2: the same program on a laptop and on a cluster."""

# region program
import socket

from monarch.actor import Actor, current_rank, endpoint
from monarch.job import JobTrait, ProcessJob


class Worker(Actor):
    @endpoint
    def where(self) -> str:
        point = current_rank()
        return f"host {point['hosts']}, gpu {point['gpus']}, on {socket.gethostname()}"


def run(job: JobTrait) -> None:
    hosts = job.state().workers  # starts the hosts, or finds those of the last run
    with hosts.spawn_procs({"gpus": 2}) as procs:
        workers = procs.spawn("workers", Worker)
        for place in workers.where.call().get().values():
            print(place.replace(socket.gethostname(), "this machine"))


# endregion


def main() -> None:
    # region laptop
    job = ProcessJob({"workers": 2})  # two hosts, each a process of this machine
    run(job)
    # endregion
    print("once more:")
    # region again
    again = ProcessJob({"workers": 2})  # as the next run of the script would
    run(again)
    assert again.apply_id == job.apply_id  # the hosts were still there
    # endregion
    # region scale
    again.scale(workers=3)
    assert again.state().workers.sizes == {"hosts": 3}
    again.kill()  # until here the hosts outlive the script
    # endregion


if __name__ == "__main__":
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # jobs are kept in .monarch of the working directory
        main()
        os.chdir("/")
