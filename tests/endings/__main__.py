"""The command: see the docstring of the package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as pytest has it

if __name__ == "__main__":
    from endings.command import main

    sys.exit(main())
