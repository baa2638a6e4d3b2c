"""Monarch in notebooks.

`html` is how objects are shown, `magics` has ``%monarch``, and `rank_map` a live map of ranks.

Nothing here is imported before a notebook asks for it.

Read `html`.

Imports `actor`, `admin`, `logs`, `stacks`, `telemetry`, `why`.
"""
