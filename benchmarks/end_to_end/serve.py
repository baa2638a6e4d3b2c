"""A model behind HTTP, in two replicas that batch: `python -m benchmarks.end_to_end.serve --requests
2000` is a quick look.

A batch takes 5 ms, however many requests are in it, up to 32. 64 clients in a process of their own
each send a request when they have the answer to the last one. One process takes HTTP and passes
requests on: for this package uvicorn in the client, with a `monarch.service`; for Ray Serve its
proxy.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from benchmarks.end_to_end.contenders import OURS, Contender, Quantity, Row, main
from benchmarks.targets import Target
from monarch.actor import Actor, this_host
from monarch.service import Service, batched

RAY_SERVE = "ray[serve]==2.60.0"
BATCH, PATIENCE, SECONDS = 32, 0.002, 0.005


def load(port: int, requests: int, clients: int) -> dict[str, float]:
    """The numbers of `programs.http_load`."""
    program = [
        "-m",
        "benchmarks.end_to_end.programs.http_load",
        *map(str, (port, requests, clients)),
    ]
    said = subprocess.run([sys.executable, *program], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(said.stdout)
    return found


class Model(Actor):
    @batched(max_size=BATCH, max_wait=PATIENCE)
    async def add(self, requests: list[list[int]]) -> list[int]:
        await asyncio.sleep(SECONDS)
        return [sum(request) for request in requests]


def with_service(requests: int, clients: int, replicas: int) -> dict[str, float]:
    uvicorn: Any = importlib.import_module("uvicorn")
    starlette: Any = importlib.import_module("starlette.applications")
    JSONResponse: Any = importlib.import_module("starlette.responses").JSONResponse  # noqa: N806

    with Service(this_host(), Model, replicas=replicas, idempotent=True) as service:
        service.scale(replicas).get()

        async def answer(request: Any) -> Any:
            return JSONResponse(await service.add.call_one(await request.json()))

        app = starlette.Starlette()
        app.add_route("/", answer, methods=["POST"])
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", access_log=False))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        found = load(server.servers[0].sockets[0].getsockname()[1], requests, clients)
        server.should_exit = True
        thread.join()
    return found


def with_ray_serve(requests: int, clients: int, replicas: int) -> dict[str, float]:
    ray: Any = importlib.import_module("ray")
    serve: Any = importlib.import_module("ray.serve")
    JSONResponse: Any = importlib.import_module("starlette.responses").JSONResponse  # noqa: N806
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray.init(num_cpus=8, include_dashboard=False, logging_level="error", log_to_driver=False)

    class Model:
        @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=PATIENCE)  # type: ignore[untyped-decorator]
        async def add(self, requests: list[list[int]]) -> list[int]:
            await asyncio.sleep(SECONDS)
            return [sum(request) for request in requests]

        async def __call__(self, request: Any) -> Any:
            return JSONResponse(await self.add(await request.json()))

    deployment = serve.deployment(num_replicas=replicas, max_ongoing_requests=4 * BATCH)(Model)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(deployment.bind())
    found = load(port, requests, clients)
    serve.shutdown()
    ray.shutdown()
    return found


ROW = Row(
    name="serve",
    title="A model behind HTTP, in two replicas that batch",
    contenders={
        OURS: Contender(with_service, ("starlette", "uvicorn")),
        "Ray Serve": Contender(with_ray_serve, requirement=RAY_SERVE),
    },
    quantities={
        "throughput": Quantity("requests/s", {"Ray Serve": Target(1, 2)}, better="higher"),
        "p99": Quantity("ms", {"Ray Serve": Target(1, 2)}),
    },
    settings={"requests": 5_000, "clients": 64, "replicas": 2},
)


if __name__ == "__main__":
    main(ROW)
