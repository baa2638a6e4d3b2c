"""The command `monarch`: jobs, workers and secrets from a terminal. Read `cli`.

Imports `actor`, `admin`, `control`, `dashboard`, `debugger`, `job`, `logs`, `programs`, `rdma`,
`spmd`, `stacks`, `sync`, `telemetry`, `tools.config`, `trust`, `tui`, `why`.
"""
