"""Actors and their threads, endpoints and their adverbs, ports, contexts.

Lives here: all that runs user code, in every kind of process. Read `endpoint` and `adverbs` (a call
begins), `request` (it waits for its answers), `cell` with `sync_cell` and `async_cell` (an actor
and its thread), `ports`, `context`; `proc_service` is what a process with actors does on request.

Imports `calls`, `hub`, `net`, `shape`, `supervision`, `wire`.
"""
