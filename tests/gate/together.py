"""Files of tests that share what is costly to make go to one worker of pytest-xdist."""

from __future__ import annotations

from typing import Any

import pytest

READS_SOURCES = frozenset(
    f"tests/api/test_{name}.py"
    for name in (
        "docstrings",
        "files",
        "guests",
        "layering",
        "packages",
        "planes",
        "promises",
        "rdma_errors",
    )
)
"""Each looks at the syntax trees of all sources (`nodes_of` of the layering), which takes a worker
two seconds to make.
"""


def scope_of(file: str) -> str:
    """What `--dist loadfile` keeps in one worker: the file, or all of those."""
    return "the sources" if file in READS_SOURCES else file


def make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduling of `--dist loadfile`, by these scopes; None leaves the choice to xdist."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Together(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid.partition("::")[0])

    return Together(config, log)
