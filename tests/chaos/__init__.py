"""Chaos: random operations on trees of actors, with an oracle that knows what must come of each.

Real processes and signals.

    python -m tests.chaos                           one minute, a new seed
    python -m tests.chaos --minutes 60 --seed 7     by the hour
    python -m tests.chaos --threads 4               as many trees at once, each used by a client thread of its own
    python -m tests.chaos --seed 7 --first-round 3 --rounds 1      once more what round 3 did

An *episode* is some hundred operations on one tree of actors; in the end everything is stopped, and
nothing may be left. What is chosen follows from the seed alone. What comes of it may depend on
races, for which the oracle leaves room: it says what is certain, what is possible, and calls
everything else a violation.

The oracle: no wait lasts longer than its bound; values are those of the model; an error comes if,
and only if, that rank is dead, stopped or about to be; each failure is heard by its owner exactly
once, with its cause; messages of one sender arrive in order, with no gap; who survives goes on
working; nothing is left behind.

Reading order: `model`, `consequences` (both pure), `journal`, `members` (the actors), `calls`,
`episode`, `operations`, `fault_operations`, `endings`, `campaign`, `__main__`.
"""
