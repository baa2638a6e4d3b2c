"""Workers on the nodes of a Slurm allocation.

    job         `SlurmJob`
    commands    questions to Slurm, and its answers
    script      the batch script that starts workers
    allocation  an allocation that is there already
    parts       meshes of one job, and their nodes
    wait        until all workers have reported
    watch       how Slurm ends a job, told in its words

Read `job`, then `script` and `wait`.

Imports `actor`, `job`, `job.base`, `trust`.
"""
