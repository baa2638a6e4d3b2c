"""SPMD programs on proc meshes: the environment that torch.distributed reads, on every rank."""
