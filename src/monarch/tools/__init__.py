"""The command `monarch`: jobs, workers and secrets from a terminal. Read `cli`."""
