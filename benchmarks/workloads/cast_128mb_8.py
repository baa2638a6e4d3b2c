"""128 MiB cast to the same actor on eight processes, every page read there: `call().get()`, p50 in
ms.
"""

from __future__ import annotations

from benchmarks.workloads._harness import Measured, Options, main
from benchmarks.workloads._payload import measure_cast


def measure(options: Options) -> Measured:
    return measure_cast(options, 128, ranks=8, count=5)


if __name__ == "__main__":
    main(measure)
