"""`python -m monarch` is the command `monarch`."""

from monarch.tools.__main__ import main

main()
