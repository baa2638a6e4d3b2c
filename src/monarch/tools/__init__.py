"""The command `monarch`: jobs, workers and secrets from a terminal. Read `cli`.

Imports `actor`, `admin`, `control`, `dashboard`, `debugger`, `doctor_gpu`, `gpu_checks`, `job`,
`job.base`, `job.kubernetes`, `logs`, `programs`, `rdma`, `spmd`, `stacks`, `sync`, `telemetry`,
`tools.config`, `trust`, `tui`, `why`.
"""
