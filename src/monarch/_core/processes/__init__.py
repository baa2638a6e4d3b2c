"""The processes of a host, and how they start and end: the agent, the spawner, procs.

Lives here: `fork`, `exec`, signals, pids. Read `agent_main` and `agent` (makes, watches and reaps
procs), `spawner` (forks them), `proc` (runs actors).

Imports `actors`, `calls`, `hub`, `net`, `routing`, `shape`, `supervision`, `wire`.
"""
