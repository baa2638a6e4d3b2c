"""The messages of one process: local receivers, open requests, ways to other processes.

Lives here: nothing that runs user code. Read `message_hub` (the hub itself), `contracts` (as
everything else knows it), `peers` (who else is there, or has ended), `local_peer` and `lifecycle`
(the way to one process of this host, and its life as a table), `remote` (to one of another host),
`multicast` (one call to many), `room` and `pressure` (who must not be sent more just now, and who
says so). Requests between the processes themselves are in `control_records`; `control` sends them,
`control_service` takes them.

Imports `calls`, `net`, `routing`, `shape`, `supervision`, `wire`.
"""
