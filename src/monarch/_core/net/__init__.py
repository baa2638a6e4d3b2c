"""The only sockets. A `Poller` waits for all of them.

Within a host, a `Connection` moves frames over one, and shared memory. Between hosts, a `ByteStream`
moves bytes, to peers that have proved who they are: read `trust`, then `greeting`, `flow`, `dial`
(`connect`) and `listener` (`listen`).

Nothing here knows what a frame means, and no user code runs here.

Imports `wire`.
"""
