"""Which tests run, and what a failure counts as.

`choice` leaves out what only `pytest --all` runs, `second_try` runs a failed process test once more,
alone, `shuffle` puts files and tests in a random order. `tests/conftest.py` registers all three.
`python -m tests.trust` and `python -m tests.order` use them from outside.
"""
