"""Runs the examples that train on a mesh, and draws their losses with those of one process into
docs/images/training.png.

    python docs/plot_training.py [FILE]

Needs matplotlib: `pip install matplotlib`.
"""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = {
    "ddp": "data parallel",
    "tensor_parallel": "tensor parallel",
    "pipeline": "pipeline",
    "small_transformer": "small transformer",
}


def draw(losses: dict[str, tuple[list[float], list[float]]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, (mesh, here)) in zip(
        figure.subplots(1, len(losses)), losses.items(), strict=True
    ):
        axes.plot(here, color="#f4a259", linewidth=4, label="one process")
        axes.plot(mesh, color="#2a6f97", linewidth=1.2, label="mesh of 4")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("step")
        axes.set_ylim(0)
        axes.grid(color="#dddddd", linewidth=0.6)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.axes[0].set_ylabel("loss")
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    sys.path.insert(0, str(ROOT / "examples"))
    losses = {title: importlib.import_module(name).run() for name, title in EXAMPLES.items()}
    draw(
        losses,
        Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "training.png",
    )


if __name__ == "__main__":
    main()
