"""The base of each kind of job, wherever its machines come from.

    trait     `JobTrait`: the life cycle, the same for every way to get machines
    cache     the file through which the next run finds a running job
    state     `JobState`: the host meshes of a running job
    contract  what every job with workers has with them, wherever they run: rank, address, lifeline
    worker_spec  what a worker is told; `launch` starts those that are processes, `processes` finds them again
    waiting   for workers that come one by one; `interrupt`, what Ctrl-C does meanwhile
    features  the dashboard, telemetry and mounts that come with a job: `admin`, `telemetry`, `mounts`, `observed`
    logs      the folder of a job's logs
    code      brings the code of a program to its hosts

Read `trait`, then `contract`.

Imports `_patterns`, `actor`, `admin`, `control`, `logs`, `mounts`, `programs`, `sync`, `telemetry`,
`trust`, `why`.
"""
