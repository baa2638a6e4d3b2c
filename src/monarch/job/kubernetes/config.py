"""`KubeConfig`: which cluster of Kubernetes, and by which credentials.

In a pod, both are files that Kubernetes puts there. Elsewhere a kubeconfig has them, with all that
it may say of plugins and proxies; that is read by the official client, the extra ``kubernetes``,
which is imported for this alone.
"""

from __future__ import annotations

import base64
import logging
import os
from pathlib import Path
from typing import Any

from ...errors import JobError
from .api import Server

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the credentials of its service account."""

logger = logging.getLogger("monarch.job")


class KubeConfig:
    """How to reach a cluster.

    By itself: from one of its pods, as the service account of that; `from_path` and `from_config`
    are for programs elsewhere.
    """

    def __init__(self) -> None:
        self._path: str | None = None
        self._configuration: Any = None
        self._lost = False

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> KubeConfig:
        """Use the current context of a kubeconfig.

        The file is read when it is needed, and again by each program.

        Args:
            path: Of the file; ``~`` is your home.
        """
        config = cls()
        config._path = str(Path(path).expanduser().absolute())
        return config

    @classmethod
    def from_config(cls, configuration: Any) -> KubeConfig:
        """Use a configuration of this program alone.

        It is not saved with a job, and the next program has to bring its own.

        Args:
            configuration: A ``kubernetes.client.Configuration``.

        Raises:
            TypeError: It is none.
        """
        if not hasattr(configuration, "auth_settings") or not hasattr(configuration, "host"):
            raise TypeError(
                f"from_config takes a kubernetes.client.Configuration, got {configuration!r}"
            )
        config = cls()
        config._configuration = configuration
        return config

    @property
    def is_in_cluster(self) -> bool:
        """True if the configuration is for programs in pods."""
        return self._path is None and self._configuration is None and not self._lost

    @property
    def is_out_of_place(self) -> bool:
        """True if the configuration is for programs in pods, and this is none."""
        return self.is_in_cluster and not _is_pod()

    def server(self) -> Server:
        """Return the API server.

        Raises:
            JobError: There is no such file, it makes no sense, or the extra ``kubernetes`` is
                missing.
        """
        if self._lost:
            raise JobError(
                "the job was saved by a program that reached the cluster by"
                " KubeConfig.from_config(...), which is not saved: describe the job again with such"
                " a configuration, or use KubeConfig.from_path(...)"
            )
        if self.is_in_cluster:
            return _of_this_pod()
        configuration = self._configuration or _read(self._path or "")

        def headers() -> dict[str, str]:
            found = configuration.auth_settings().values()
            return {
                setting["key"]: setting["value"]
                for setting in found
                if setting["in"] == "header" and setting["value"]
            }

        return Server(
            configuration.host.rstrip("/"), headers, configuration.ssl_ca_cert,
            configuration.cert_file, configuration.key_file, configuration.verify_ssl,
            getattr(configuration, "tls_server_name", None), configuration.proxy,
        )  # fmt: skip

    @property
    def path(self) -> str | None:
        """The path of the kubeconfig, if there is one."""
        return self._path

    def as_kubeconfig(self) -> dict[str, Any]:
        """Return what a kubeconfig would say, with the credentials of this moment.

        Raises:
            JobError: As `server`.
        """
        server = self.server()
        cluster: dict[str, Any] = {
            "server": server.url,
            "insecure-skip-tls-verify": not server.verify,
        }
        user: dict[str, Any] = {}
        for place, key, file in (
            (cluster, "certificate-authority-data", server.ca_file if server.verify else None),
            (user, "client-certificate-data", server.cert_file),
            (user, "client-key-data", server.key_file),
        ):
            if file:
                place[key] = base64.b64encode(Path(file).read_bytes()).decode()
        cluster |= {
            key: value
            for key, value in (("tls-server-name", server.name), ("proxy-url", server.proxy))
            if value
        }
        for value in server.headers().values():
            user["token"] = value.removeprefix("Bearer ")
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }

    def __getstate__(self) -> dict[str, Any]:
        if self._configuration is not None:
            logger.warning(
                "KubeConfig.from_config(...) is not saved: the next program has to describe it"
                " again"
            )
        return {
            "_path": self._path,
            "_configuration": None,
            "_lost": self._lost or self._configuration is not None,
        }

    def __repr__(self) -> str:
        if self._path is not None:
            return f"KubeConfig.from_path({self._path!r})"
        return "KubeConfig()" if self.is_in_cluster else "KubeConfig.from_config(...)"


def _is_pod() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (ACCOUNT / "token").exists()


def _of_this_pod() -> Server:
    if not _is_pod():
        raise JobError(
            "this program runs in no pod with a service account: KubernetesJob(...,"
            ' kubeconfig=KubeConfig.from_path("~/.kube/config")) reaches a cluster from elsewhere'
        )
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    address = f"[{host}]" if ":" in host else host
    return Server(
        f"https://{address}:{port}",
        # it is replaced every hour
        lambda: {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}"},
        str(ACCOUNT / "ca.crt"),
    )


def _read(path: str) -> Any:
    try:
        from kubernetes import client, config
    except ModuleNotFoundError:
        raise JobError(
            "to read a kubeconfig, a package is missing: pip install 'pymonarch[kubernetes]'"
        ) from None
    configuration = client.Configuration()
    try:
        config.load_kube_config(config_file=path, client_configuration=configuration)
    except Exception as error:  # what it raises is not described
        raise JobError(f"kubeconfig {path}: {error}") from error
    return configuration
