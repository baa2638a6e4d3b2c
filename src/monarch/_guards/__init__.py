"""Checks before something starts: no import runs, and the system has room and features.

Lives here: checks and the errors that explain them. They are asked by code that starts something;
nothing here starts anything.

Read `surroundings`, then `main_guard`.

Imports no other package of `monarch`.
"""
