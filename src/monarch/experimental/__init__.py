"""Unstable names: time limits for blocks of synchronous code, in `thread_timeout`."""
