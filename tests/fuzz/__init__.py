"""Bytes that nobody would send, to every parser of bytes: before a peer has proved who it is, and
after.

A target is a function that takes any bytes, and raises if they did what no bytes may do: an
exception other than the one that the parser promises, an error logged as internal, a stranger let
in, memory claimed without bounds, another result where the same bytes come in other pieces.
`targets` has all of them.

Those of `live` are real processes, which must live on, and answer others.

CI gives each target the same few hundred inputs (`test_parsers`), within a minute for all. At a
desk::

    python -m tests.fuzz --minutes 60
    python -m tests.fuzz --target "link records" --again 4d4f4e41...     # what was printed

Half of the time goes to plain random edits of valid bytes, which are quick; half to Hypothesis,
which is clever, and finds the smallest input that fails.
"""
