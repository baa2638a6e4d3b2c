"""Images that workers of a `DataLoader` decode, crop and turn into tensors."""

from __future__ import annotations

import time
import zlib

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SIDE, CROP, BATCH, WORKERS = 160, 128, 32, 1
DIFFERENT = 16  # images in memory, as a file system that has all in its cache


class Images(Dataset[torch.Tensor]):
    """RGB images, packed by zlib; each index is one of a few."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        coarse = torch.rand(DIFFERENT, 3, SIDE // 8, SIDE // 8, generator=generator)
        smooth = torch.nn.functional.interpolate(coarse, size=SIDE, mode="bilinear")
        pixels = (255 * smooth).to(torch.uint8).numpy()
        self._packed = [zlib.compress(image.tobytes(), 1) for image in pixels]
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        packed = self._packed[index % DIFFERENT]
        image = torch.frombuffer(bytearray(zlib.decompress(packed)), dtype=torch.uint8)
        top, left = index % (SIDE - CROP), index * 7 % (SIDE - CROP)
        part = image.reshape(3, SIDE, SIDE)[:, top : top + CROP, left : left + CROP]
        return (part.flip(2) if index % 2 else part).to(torch.float32).div(127.5).sub(1)


def seconds_an_epoch(images: int) -> dict[str, float]:
    """The seconds in which all ranks together go through so many images, the second time."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = Images(images)
    order: DistributedSampler[torch.Tensor] = DistributedSampler(data)
    loader = DataLoader(data, BATCH, sampler=order, num_workers=WORKERS, persistent_workers=True)
    took = 0.0
    for epoch in range(2):
        order.set_epoch(epoch)
        dist.barrier()
        begun, seen = time.perf_counter(), 0
        for batch in loader:
            seen += len(batch)
        dist.barrier()
        took = time.perf_counter() - begun
        assert seen == len(order), f"{seen} of {len(order)} images came"
    return {"an epoch": took}
