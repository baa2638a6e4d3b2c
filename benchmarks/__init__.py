"""Benchmarks: the same public-API programs under two packages, in turn, with ratios.

`python -m benchmarks list` and `python -m benchmarks run`, from the repository root; `README.md`
here says how to read the result. The programs are in `workloads/`. This module stays empty: the
programs also run in environments that have nothing but the package under test.
"""
