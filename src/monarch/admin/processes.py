"""How the processes of the interface are started, and what their ends say."""

PROGRAM_ENDED = 3
"""The status of a helper that has found no program."""
