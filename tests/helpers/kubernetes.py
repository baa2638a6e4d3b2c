"""An API server that behaves like that of Kubernetes, as far as jobs and kubectl use it; its nodes
run real processes (`kubelet`).

What it answers was seen of a real one: the statuses, which patches a custom resource takes, what a
watch tells when labels change, a pod goes, or its version is too old.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import os
import re
import signal
import ssl
import tempfile
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from helpers.certificates import authority
from helpers.kubelet import Kubelet, Object
from helpers.spdy import PortForward
from helpers.waiting import wait_until

NAMESPACE = "tests"
QUEUE = "kueue.x-k8s.io/queue-name"
TOKEN = "a token of tests"
USER = f"system:serviceaccount:{NAMESPACE}:default"
_NOW = "2026-01-01T00:00:00Z"
_KINDS = {
    "pods": "Pod",
    "events": "Event",
    "secrets": "Secret",
    "services": "Service",
    "statefulsets": "StatefulSet",
    "jobs": "Job",
    "monarchmeshes": "MonarchMesh",
}
_GROUPS = {
    "v1": ["pods", "events", "secrets", "services"],
    "apps/v1": ["statefulsets"],
    "batch/v1": ["jobs"],
    "monarch.pytorch.org/v1alpha1": ["monarchmeshes"],
}
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "AlreadyExists",
    410: "Expired",
}
_REASONS.update({415: "UnsupportedMediaType", 422: "Invalid"})


class Refused(Exception):
    """An answer that is a `Status`."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
        }
        self.status |= {"reason": _REASONS.get(code, "InternalError"), "code": code}
        self.code = code


class Kubernetes:
    """Attributes:
    folder: With what a pod finds of its service account: ``token``, ``ca.crt``; and ``kubeconfig``.
    denied: Pairs of a verb and a resource that nobody may use.
    allowed: Those that one may use; None for all.
    refused: What was tried without being allowed.
    has_operator: Whether there are `MonarchMesh`es.
    expired: Whether the next watch finds its version too old.
    outages: How many of the next requests get no answer.
    has_kueue: Whether things with the label of a queue wait until it admits them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tag = uuid.uuid4().hex
        self._lock = threading.RLock()
        self._version = 100
        # version, resource, what it was, what it is
        self._log: list[tuple[int, str, Object | None, Object]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._kubelet = Kubelet(self.tag, self._pod_changed, self._pod_gone, self._event)
        self.objects: dict[tuple[str, str], Object] = {}
        self.requests: list[str] = []
        self.reset()

    def reset(self) -> None:
        self.denied: set[tuple[str, str]] = set()
        self.allowed: set[tuple[str, str]] | None = None
        self.refused: list[tuple[str, str]] = []
        self.has_operator = True
        self.expired = False
        self.outages = 0
        self.has_kueue = False

    # for tests

    def names(self, resource: str) -> list[str]:
        with self._lock:
            return sorted(name for kind, name in self.objects if kind == resource)

    def processes(self, pod: str = "") -> list[int]:
        """Of a pod, or of all."""
        with self._lock:
            uid = self.objects["pods", pod]["metadata"]["uid"] if pod else ""
        return self._kubelet.processes(uid)

    def call(self, function: Callable[[], Any]) -> None:
        """Run a function in the server."""
        done = threading.Event()

        def run() -> None:
            function()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(10)

    def delete_pod(self, name: str) -> None:
        """As ``kubectl delete pod`` does."""
        self.call(lambda: self._remove("pods", name))

    def evict_pod(self, name: str) -> None:
        """Its node evicts it; nothing takes its place while it is there."""
        with self._lock:
            pod = self.objects["pods", name]
        self.call(lambda: self._kubelet.evict(pod))

    def lose_pod(self, name: str) -> None:
        """As if its node had lost its power: it is not ready any more, and ends only by force."""
        with self._lock:
            pod = self.objects["pods", name]
        for pid in self.processes(name):
            os.kill(pid, signal.SIGSTOP)
        self.call(lambda: self._kubelet.lose(pod))

    def add_pod(self, name: str, labels: Mapping[str, str], **spec: Any) -> None:
        """A pod that somebody else has made."""
        self.call(
            lambda: self._make_pod(
                name, {"metadata": {"labels": dict(labels)}, "spec": spec}, None, {}
            )
        )

    def admit(self, queue: str) -> None:
        """As Kueue does when a queue has room: jobs go on, and gates of pods are opened."""

        def go() -> None:
            for (kind, name), thing in list(self.objects.items()):
                if thing["metadata"].get("labels", {}).get(QUEUE) != queue:
                    continue
                if kind == "jobs":
                    self._patch(
                        "jobs", name, "application/merge-patch+json", {"spec": {"suspend": False}}
                    )
                elif kind == "pods":
                    thing["spec"]["schedulingGates"] = []
                    self._put("pods", thing, thing)

        self.call(go)

    def clear(self) -> list[str]:
        """Remove everything, and return what there was."""
        left = [f"{kind} {name}" for kind, name in self.objects if kind != "events"]

        def remove() -> None:
            for kind, name in list(self.objects):
                if (kind, name) in self.objects:
                    self._remove(kind, name)

        self.call(remove)
        wait_until(
            lambda: not self.objects and not self.processes(), what=f"the end of {self.objects}"
        )
        self.reset()
        return left

    # the server

    def start(self) -> None:
        signer = authority()
        host = signer.sign_address("127.0.0.1")
        for name, text in {"ca.crt": signer.pem, "host.pem": host.both, "token": TOKEN}.items():
            (self.folder / name).write_text(text)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "host.pem")
        ready = threading.Event()

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._stopped = asyncio.Event()
            self._news = asyncio.Event()
            server = await asyncio.start_server(self._client, "127.0.0.1", 0, ssl=context)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            async with server:
                await self._stopped.wait()

        self._thread = threading.Thread(
            target=asyncio.run, args=(serve(),), name="kubernetes-of-tests", daemon=True
        )
        self._thread.start()
        assert ready.wait(10)
        cluster = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority": str(self.folder / "ca.crt"),
        }
        config: Object = {"apiVersion": "v1", "kind": "Config", "current-context": "c"}
        config |= {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
        }
        config |= {
            "contexts": [
                {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}
            ]
        }
        (self.folder / "kubeconfig").write_text(json.dumps(config))

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)
        self._kubelet.end()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                method, target, _ = line.decode().split()
                headers = {}
                while (line := await reader.readline()).strip():
                    name, _, value = line.decode().partition(":")
                    headers[name.strip().lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if self.outages:
                    self.outages -= 1
                    return
                try:
                    if await self._answer(method, target, headers, body, reader, writer):
                        return
                except Refused as refused:
                    _send(writer, refused.code, refused.status)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Returns whether the connection is over."""
        url = urlsplit(target)
        query = dict(parse_qsl(url.query))
        parts = url.path.strip("/").split("/")
        who = headers.get("authorization", "")
        if who and who != f"Bearer {TOKEN}":
            raise Refused(401, "Unauthorized")
        if "namespaces" not in parts:
            _send(writer, 200, _discovery(parts))
            return False
        group = "/".join(parts[1 : parts.index("namespaces")])
        _, resource, *rest = parts[parts.index("namespaces") + 1 :]
        name, sub = [*rest, "", ""][:2]
        known = [
            each for each in _GROUPS.get(group, []) if self.has_operator or each != "monarchmeshes"
        ]
        if resource not in known:
            raise Refused(404, "the server could not find the requested resource")
        watch = query.get("watch") in ("1", "true")
        verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(method) or (
            "get" if name else "list"
        )
        verb = "watch" if watch else verb
        self.requests.append(f"{verb} {resource}")
        whole = f"{resource}/{sub}" if sub else resource
        if (
            not who
            or (verb, whole) in self.denied
            or (self.allowed is not None and (verb, whole) not in self.allowed)
        ):
            self.refused.append((verb, whole))
            text = (
                f'{resource} is forbidden: User "{USER if who else "system:anonymous"}" cannot'
                f' {verb} resource "{whole}" in API group '
            )
            raise Refused(403, f'{text}"{group.rpartition("/")[0]}" in the namespace "{NAMESPACE}"')
        if watch:
            await self._watch(writer, resource, query)
        elif verb == "list":
            items = [item for item in self._all(resource) if _matches(item, query)]
            metadata = {"resourceVersion": str(self._version)}
            _send(
                writer,
                200,
                {
                    "kind": f"{_KINDS[resource]}List",
                    "apiVersion": group,
                    "metadata": metadata,
                    "items": items,
                },
            )
        elif sub == "portforward":
            return await self._port_forward(self._get(resource, name), headers, reader, writer)
        elif sub == "log":
            self._get(resource, name)
            lines = self._kubelet.log(name).splitlines(keepends=True)[
                -int(query.get("tailLines", 1000)) :
            ]
            _send(writer, 200, "".join(lines))
        elif verb == "get":
            _send(writer, 200, self._get(resource, name))
        elif verb == "create":
            _send(writer, 201, self._create(resource, json.loads(body)))
        elif verb == "patch":
            _send(
                writer,
                200,
                self._patch(resource, name, headers.get("content-type", ""), json.loads(body)),
            )
        else:
            _send(writer, 200, self._delete(resource, name))
        return False

    # objects

    def _all(self, resource: str) -> list[Object]:
        with self._lock:
            return [thing for (kind, _), thing in sorted(self.objects.items()) if kind == resource]

    def _get(self, resource: str, name: str) -> Object:
        with self._lock:
            if (resource, name) not in self.objects:
                raise Refused(404, f'{resource} "{name}" not found')
            return self.objects[resource, name]

    def _create(self, resource: str, thing: Object) -> Object:
        name = thing["metadata"]["name"]
        if not re.fullmatch("[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name):
            raise Refused(
                422, f'{_KINDS[resource]} "{name}" is invalid: metadata.name: Invalid value'
            )
        if resource in ("monarchmeshes", "statefulsets") and not isinstance(
            thing["spec"].get("replicas"), int
        ):
            raise Refused(
                422, f'{_KINDS[resource]} "{name}" is invalid: spec.replicas: Required value'
            )
        with self._lock:
            if (resource, name) in self.objects:
                raise Refused(409, f'{resource} "{name}" already exists')
            if resource == "secrets":
                plain = thing.pop("stringData", {})
                thing["data"] = {
                    key: base64.b64encode(value.encode()).decode() for key, value in plain.items()
                }
            thing["metadata"] |= {
                "namespace": NAMESPACE,
                "uid": uuid.uuid4().hex,
                "generation": 1,
                "creationTimestamp": _NOW,
            }
            if self.has_kueue:
                self._hold(resource, thing)
            self._put(resource, None, thing)
        self._reconcile(resource, thing)
        return thing

    def _hold(self, resource: str, thing: Object) -> None:
        """As the webhook of Kueue does with what has the label of a queue."""
        queue = thing["metadata"].get("labels", {}).get(QUEUE)
        if queue is not None and resource == "jobs":
            thing["spec"]["suspend"] = True
        elif queue is not None and resource == "statefulsets":
            thing["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})[QUEUE] = (
                queue
            )
        elif queue is not None and resource == "pods":
            thing["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]

    def _patch(self, resource: str, name: str, kind: str, patch: Object) -> Object:
        if kind != "application/merge-patch+json":
            raise Refused(
                415,
                "the body of the request was in an unknown format - accepted media types include:"
                f" {kind}",
            )
        with self._lock:
            old = copy.deepcopy(self._get(resource, name))
            new: Object = _merged(old, patch)
            if new.get("spec") != old.get("spec"):
                new["metadata"]["generation"] += 1
            self._put(resource, old, new)
        self._reconcile(resource, new)
        return new

    def _delete(self, resource: str, name: str) -> Object:
        self._get(resource, name)
        self._remove(resource, name)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _remove(self, resource: str, name: str) -> None:
        """And what belongs to it.

        A pod is told that it has to end; the kubelet tells when it has.
        """
        thing = self._get(resource, name)
        if resource == "pods":
            if "deletionTimestamp" not in thing["metadata"]:
                old = copy.deepcopy(thing)
                thing["metadata"]["deletionTimestamp"] = _NOW
                self._put("pods", old, thing)
            return
        with self._lock:
            del self.objects[resource, name]
            self._tell(resource, thing, {**thing, "gone": True})
            owned = [
                key
                for key, each in self.objects.items()
                if each["metadata"].get("owner") == (resource, name)
            ]
        for kind, each in owned:
            self._remove(kind, each)

    def _put(self, resource: str, old: Object | None, thing: Object) -> None:
        with self._lock:
            self.objects[resource, thing["metadata"]["name"]] = thing
            self._tell(resource, old, thing)

    def _tell(self, resource: str, old: Object | None, new: Object) -> None:
        self._version += 1
        new["metadata"]["resourceVersion"] = str(self._version)
        self._log.append((self._version, resource, old, copy.deepcopy(new)))
        self._news.set()
        self._news = asyncio.Event()

    async def _watch(
        self, writer: asyncio.StreamWriter, resource: str, query: Mapping[str, str]
    ) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding:"
            b" chunked\r\n\r\n"
        )
        place = int(query.get("resourceVersion") or 0)
        end = self._loop.time() + float(query.get("timeoutSeconds", 300))
        if self.expired:
            self.expired = False
            _chunk(
                writer,
                {
                    "type": "ERROR",
                    "object": Refused(410, f"too old resource version: {place} (7)").status,
                },
            )
            end = 0.0
        while self._loop.time() < end:
            more, news = (
                self._news,
                [each for each in self._log if each[0] > place and each[1] == resource],
            )
            if not news:
                try:
                    await asyncio.wait_for(more.wait(), max(0.0, end - self._loop.time()))
                except asyncio.TimeoutError:
                    break
                continue
            place = news[-1][0]
            for _, _, old, new in news:
                before, after = (
                    each is not None and "gone" not in each and _matches(each, query)
                    for each in (old, new)
                )
                if before or after:
                    kind = ("MODIFIED" if before else "ADDED") if after else "DELETED"
                    _chunk(writer, {"type": kind, "object": new})
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async def _port_forward(
        self,
        pod: Object,
        headers: Mapping[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        # new clients try WebSocket first, and then this
        if headers.get("upgrade", "").lower() != "spdy/3.1":
            raise Refused(400, "unable to upgrade: no spdy/3.1 requested")
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n"
        )
        address = pod["status"]["podIP"]
        await PortForward(
            reader, writer, lambda port: asyncio.open_connection(address, port)
        ).serve()
        return True

    # controllers

    def _reconcile(self, resource: str, thing: Object) -> None:
        name, spec = thing["metadata"]["name"], thing.get("spec", {})
        if resource == "monarchmeshes":
            template = copy.deepcopy(spec["podTemplate"])
            labels = {
                "app.kubernetes.io/name": "monarch-worker",
                "monarch.pytorch.org/mesh-name": name,
            }
            template.setdefault("metadata", {})["labels"] = {
                **template.get("metadata", {}).get("labels", {}),
                **labels,
            }
            inner = {
                "replicas": spec["replicas"],
                "template": template,
                "serviceName": f"{name}-svc",
            }
            if ("statefulsets", name) in self.objects:
                self._patch("statefulsets", name, "application/merge-patch+json", {"spec": inner})
            else:
                owner = {"name": name, "owner": (resource, name)}
                self._create(
                    "services",
                    {"metadata": {**owner, "name": f"{name}-svc"}, "spec": {"clusterIP": "None"}},
                )
                self._create("statefulsets", {"metadata": owner, "spec": inner})
        elif resource == "statefulsets":
            names = [f"{name}-{rank}" for rank in range(spec["replicas"])]
            self._have_pods(thing, resource, names, "apps.kubernetes.io/pod-index")
        elif resource == "jobs":
            done = thing.get("status", {}).get("completedIndexes", "").split(",")
            ranks = range(0 if spec.get("suspend") else spec["completions"])
            names = [f"{name}-{rank}-x" for rank in ranks]
            self._have_pods(
                thing, resource, names, "batch.kubernetes.io/job-completion-index", done
            )

    def _have_pods(
        self, owner: Object, resource: str, names: list[str], label: str, done: Collection[str] = ()
    ) -> None:
        key = (resource, owner["metadata"]["name"])
        for rank, name in enumerate(names):
            if ("pods", name) not in self.objects and str(rank) not in done:
                self._make_pod(name, owner["spec"]["template"], key, {label: str(rank)})
        for pod in self._all("pods"):
            if pod["metadata"].get("owner") == key and pod["metadata"]["name"] not in names:
                self._remove("pods", pod["metadata"]["name"])

    def _make_pod(
        self, name: str, template: Object, owner: tuple[str, str] | None, labels: Mapping[str, str]
    ) -> None:
        metadata = {
            "name": name,
            "owner": owner,
            "labels": {**template.get("metadata", {}).get("labels", {}), **labels},
        }
        pod = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": metadata,
            "spec": copy.deepcopy(template["spec"]),
            "status": {},
        }
        self._create("pods", pod)
        task = asyncio.ensure_future(self._kubelet.run(pod, self._secret))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _secret(self, name: str, key: str) -> str:
        return base64.b64decode(self._get("secrets", name)["data"][key]).decode()

    def _pod_changed(self, pod: Object) -> None:
        owner = pod["metadata"]["owner"]
        if (
            pod["status"].get("phase") == "Succeeded"
            and owner in self.objects
            and owner[0] == "jobs"
        ):
            status = self.objects[owner].setdefault("status", {})
            index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
            status["completedIndexes"] = ",".join(
                filter(None, {*status.get("completedIndexes", "").split(","), index})
            )
        self._put("pods", pod, pod)

    def _pod_gone(self, pod: Object) -> None:
        name, owner = pod["metadata"]["name"], pod["metadata"]["owner"]
        with self._lock:
            del self.objects["pods", name]
            self._tell("pods", pod, {**pod, "gone": True})
        if owner in self.objects:
            self._reconcile(owner[0], self.objects[owner])

    def _event(self, pod: Object, reason: str, message: str) -> None:
        name = pod["metadata"]["name"]
        thing = {
            "metadata": {"name": f"{name}.{uuid.uuid4().hex[:8]}"},
            "reason": reason,
            "message": message,
        }
        self._create(
            "events", {**thing, "involvedObject": {"kind": "Pod", "name": name}, "type": "Warning"}
        )


@contextmanager
def running_kubernetes() -> Iterator[Kubernetes]:
    with tempfile.TemporaryDirectory(prefix="mk") as folder:
        kubernetes = Kubernetes(Path(folder))
        kubernetes.start()
        try:
            yield kubernetes
        finally:
            kubernetes.end()


def _send(writer: asyncio.StreamWriter, code: int, content: Object | str) -> None:
    data = (content if isinstance(content, str) else json.dumps(content)).encode()
    kind = "text/plain" if isinstance(content, str) else "application/json"
    writer.write(
        f"HTTP/1.1 {code} -\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
    )


def _chunk(writer: asyncio.StreamWriter, content: Object) -> None:
    data = json.dumps(content).encode() + b"\n"
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _discovery(parts: list[str]) -> Object:
    """What there is, for kubectl."""
    if parts == ["version"]:
        return {"major": "1", "minor": "32", "gitVersion": "v1.32.0"}
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    groups = [name for name in _GROUPS if "/" in name]
    if parts == ["apis"]:
        versions = {
            name: {"groupVersion": name, "version": name.partition("/")[2]} for name in groups
        }
        groups_found = [
            {
                "name": n.partition("/")[0],
                "versions": [versions[n]],
                "preferredVersion": versions[n],
            }
            for n in groups
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups_found}
    group = "/".join(parts[1:])
    if group not in _GROUPS:
        raise Refused(404, "the server could not find the requested resource")
    verbs = ["create", "delete", "get", "list", "patch", "watch"]
    found: list[Object] = [
        {
            "name": n,
            "kind": _KINDS[n],
            "singularName": _KINDS[n].lower(),
            "namespaced": True,
            "verbs": verbs,
        }
        for n in _GROUPS[group]
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group,
        "resources": found,
    }


def _matches(thing: Object, query: Mapping[str, str]) -> bool:
    labels = thing["metadata"].get("labels") or {}
    wanted = [term.partition("=") for term in query.get("labelSelector", "").split(",") if term]
    if any(labels.get(key) != value.lstrip("=") for key, _, value in wanted):
        return False
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = term.partition("=")
        found: Any = thing
        for part in path.split("."):
            found = found.get(part, {})
        if found != value:
            return False
    return True


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = _merged(new.get(key), value)
    return new
