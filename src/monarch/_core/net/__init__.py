"""The only sockets. A `Poller` waits for all of them; a `Connection` moves frames over one.

Nothing here knows what a frame means, and no user code runs here.
"""
