"""Messages as bytes: addresses, frames, pickling. Pure: no socket, no thread, no clock.

Read `frame`, which draws the layout of everything that crosses a socket, then `pickling`,
`address`, and `link` with `link_table`.

Imports no other package of `monarch`.
"""
