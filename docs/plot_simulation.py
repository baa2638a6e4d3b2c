"""Draws the pictures of docs/simulator.md: a step of examples/simulate_ddp.py, and what it predicts
for more GPUs.

    python docs/plot_simulation.py

Needs matplotlib: `pip install matplotlib`.
"""

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from monarch import Simulator, Stream

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
HOSTS = (1, 2, 4, 8, 16, 32, 64, 128)


def draw_step(example: Any, path: Path) -> None:
    """A step whose reductions run beside it, on eight hosts with slow networks."""
    with tempfile.TemporaryDirectory() as folder:
        simulator = Simulator(
            8,
            example.GPUS,
            machine=example.with_network(100),
            trace_path=Path(folder) / "trace.json",
        )
        example.train(simulator, Stream("communication"), 2)
    path.write_text(simulator.picture())


def draw_scaling(example: Any, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    gpus = [hosts * example.GPUS for hosts in HOSTS]
    with tempfile.TemporaryDirectory() as folder:
        for stream, style in ((None, "--"), (Stream("communication"), "-")):
            steps = [example.predict(hosts, stream, Path(folder)) for hosts in HOSTS]
            for gigabits, colour in zip(
                example.NETWORKS, ("#2a6f97", "#f4a259", "#bc4b51"), strict=True
            ):
                label = f"{gigabits} Gbit/s, {'in the way' if stream is None else 'beside'}"
                axes.plot(
                    gpus,
                    [step[gigabits].seconds * 1e3 for step in steps],
                    style,
                    color=colour,
                    label=label,
                )
    axes.set_xscale("log", base=2)
    axes.set_xticks(gpus, [str(each) for each in gpus])
    axes.set_ylim(0)
    axes.set_xlabel("GPUs")
    axes.set_ylabel("milliseconds for a step")
    axes.grid(color="#dddddd", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=110)


def main() -> None:
    sys.path.insert(0, str(ROOT / "examples"))
    example = importlib.import_module("simulate_ddp")
    draw_step(example, IMAGES / "simulated_step.svg")
    draw_scaling(example, IMAGES / "simulated_scaling.png")


if __name__ == "__main__":
    main()
