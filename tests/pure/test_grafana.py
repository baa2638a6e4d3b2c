"""The dashboard for Grafana asks for nothing but what is exposed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from monarch.telemetry import prometheus

FILE = Path(__file__).parents[2] / "docs" / "grafana" / "monarch.json"
OF_ENGINE = {"actor_message_queue_size", "monarch_silent"}  # under other names than columns
WORDS = {"by", "or", "count", "max", "min", "sum", "quantile", "rate", "increase", "vector"}


def expressions(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], target["legendFormat"]


def test_each_panel_asks_for_metrics_and_labels_that_there_are() -> None:
    exposed = {
        f"monarch_{name}": {*labels.split(), "mesh", "rank", "pid", "machine"}
        for labels, metrics in prometheus._STATES.values()
        for name in metrics.values()
    } | {name: {"mesh", "rank", "actor", "who", "why"} for name in OF_ENGINE}
    found = list(expressions(json.loads(FILE.read_text())))
    assert len(found) > 20
    used = set()
    for expression, legend in found:
        labels = set(re.findall(r"by \(([^)]*)\)", expression)) | set(
            re.findall(r"\{\{(\w+)\}\}", legend)
        )
        bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|by \([^)]*\)", "", expression)
        names = set(re.findall(r"[a-z_][a-z_0-9]*", bare)) - WORDS
        assert names <= exposed.keys(), expression
        for name in names:
            assert {each.strip() for label in labels for each in label.split(",")} <= exposed[name]
        used |= names
    kinds = {name.split("_")[1] for name in used if name.startswith("monarch_")}
    assert kinds == {"gpu", "host", "messages", "proc", "silent"}


def test_panels_lie_beside_each_other_and_have_numbers_of_their_own() -> None:
    panels = json.loads(FILE.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for each in (panel["gridPos"] for panel in panels)
        for x in range(each["x"], each["x"] + each["w"])
        for y in range(each["y"], each["y"] + each["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24
