"""What may still change: time limits for blocks of synchronous code, in `thread_timeout`."""
