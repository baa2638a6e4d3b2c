"""A simulated training with known faults behind the real admin interface.

It is for trying dashboards, for pictures and for tests; `monarch demo` shows one that was recorded.

Simulated are processes and hosts, and nothing above: `hub` is a message hub whose agents are
functions. A question goes out as the control record that real agents get, and the answer is the
value that they send, pickled as theirs. What makes a verdict, tables, SQL or a page of it is the
code that real programs meet.

`world` says who there is, and where each rank stands at a time, which is all computed from the
time: a helper that starts again goes on where the last one was. `faults` is what can be wrong;
`stacks`, `state_rows`, `event_rows` and `logs` are what agents answer, `answers` by which record.

Read `world`, then `hub`. `python -m benchmarks.demo --help` says how to start one.
"""
