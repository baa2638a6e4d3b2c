"""What failed, whose it was, who must hear of it. Pure: no socket, no thread, no clock.

`failure` is the record that travels; `ownership` is what one actor owns: events in, instructions out; `restart` decides
which ranks start again; `fates` remembers what has ended. The tree is made of these: each actor knows what it owns, and tells its own owner what it could
not handle.
"""
