"""How the processes of the interface are started, and what their ends say."""

PROGRAM_ENDED = 3
"""The status of a helper that has found no program."""

CODE = "import sys; '' in sys.path[:1] and sys.path.pop(0); from {} import main; main()"
"""Has a module's `main` run. Nothing is imported from the working directory, where a `uvicorn.py`
would run with the secret.
"""
