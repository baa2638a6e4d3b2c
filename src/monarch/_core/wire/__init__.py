"""Messages as bytes: addresses, frames, pickling. Pure: no socket, no thread, no clock.

Start with `frame`, which draws the layout of everything that crosses a socket.
"""
