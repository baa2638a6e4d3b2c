"""`DistributedDataParallel` on pods of Kubernetes.

Run it in a pod (client.yaml shows one), or outside with a kubeconfig.

    python examples/kubernetes/train.py IMAGE                              in the cluster, 2 pods
    python examples/kubernetes/train.py IMAGE 4 8 ~/.kube/config           outside; 4 pods with 8 GPUs each

The image has a Python with this release of pymonarch, and torch. access.yaml allows what the
program does. The job stays for the next run, which starts at once; it ends after ten minutes
without one, or by ``monarch kill``.
"""

import sys

from monarch.actor import Actor, HostMesh, endpoint
from monarch.job.kubernetes import ImageSpec, KubeConfig, KubernetesJob
from monarch.spmd import setup_torch_elastic_env


# region job
def trainers_on_kubernetes(image: str, pods: int, gpus: int, kubeconfig: str = "") -> HostMesh:
    job = KubernetesJob(
        "research",  # the namespace
        # None in a pod of the cluster
        kubeconfig=KubeConfig.from_path(kubeconfig) if kubeconfig else None,
        controller="Job",  # "MonarchMesh" where Monarch's operator is installed
        idle_limit=600,  # seconds without a client, after which the pods end
    )
    job.add_mesh(
        "trainers",
        pods,
        image_spec=ImageSpec(
            image, {"nvidia.com/gpu": gpus} if gpus else None, shared_memory_size="1Gi"
        ),
        # labels={"kueue.x-k8s.io/queue-name": "research"},
    )
    return job.state().trainers


# endregion


class Trainer(Actor):
    def __init__(self, backend: str) -> None:
        import torch.distributed as dist

        # finds the others by the variables that torchrun would set
        dist.init_process_group(backend)

    @endpoint
    def train(self, steps: int) -> float:
        import os

        import torch
        from torch.nn.parallel import DistributedDataParallel

        local = int(os.environ["LOCAL_RANK"])
        device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(4, 1).to(device))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = torch.tensor(0.0)
        for _ in range(steps):
            inputs = torch.randn(64, 4, device=device)
            loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return loss.item()


# region main
def main(image: str, pods: int = 2, gpus: int = 0, kubeconfig: str = "") -> None:
    procs = trainers_on_kubernetes(image, pods, gpus, kubeconfig).spawn_procs({"gpus": gpus or 2})
    setup_torch_elastic_env(procs)
    losses = procs.spawn("trainers", Trainer, "nccl" if gpus else "gloo").train.call(steps=60).get()
    print(
        f"{len(losses)} ranks, loss of each:", ", ".join(f"{loss:.4f}" for loss in losses.values())
    )
    procs.stop().get()


# endregion

if __name__ == "__main__":
    image, pods, gpus, kubeconfig = [*sys.argv[1:], *["", "2", "0", ""][len(sys.argv) - 1 :]]
    main(image, int(pods), int(gpus), kubeconfig)
