"""Workers on machines that ssh reaches.

    job         `SSHJob`
    workers     starts, finds and ends them
    reach       connects to them without an open port
    connection  the master connection to a machine
    text        words for a shell on the other side

Read `job`, then `workers`.

Imports `job`, `job.base`, `trust`.
"""
