"""Random endings: programs that are ended in all ways, from their first microsecond on. Nothing may
be left of them: no process, no folder, no segment of shared memory; and no word, nor a status, but
their own.

    python -m tests.endings --runs 500 --at-once 3
    python -m tests.endings --seed 7 --first 31 --runs 1

`program` is what is run; it ends by itself, in one of several ways, or waits. `cases` draws how and
when, `sandbox` gives each program a ``/tmp`` and a ``/dev/shm`` of its own, so that nothing that
other programs do matters, and `verdict` says what was wrong. Needs namespaces of mounts: root, or a
kernel that gives them to all users.
"""
