"""Records of failure, their owners, and the parties to be told.

Pure: no socket, no thread, no clock.

`failure` is the record that travels, and `tombstones` remembers some. `ownership` is what one actor
owns: events in, instructions out. `restart` decides which ranks start again, `deadlock` who waits in
a circle. The tree is made of these: each actor knows what it owns, and tells its own owner what it
could not handle.

Read `failure`, then `ownership` and `restart`; `deadlock` stands alone.

Imports no other package of `monarch`.
"""
