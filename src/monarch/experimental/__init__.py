"""Unstable names: time limits for blocks of synchronous code, in `thread_timeout`.

Imports no other package of `monarch`.
"""
