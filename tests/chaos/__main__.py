"""The command: see the docstring of the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))  # procs import the actors by name, as pytest has it
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))

if __name__ == "__main__":
    from chaos.command import main

    sys.exit(main())
