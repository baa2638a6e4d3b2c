"""Checks before something starts: no import is running, the system has room and the needed
features.

Lives here: checks and the errors that explain them. They are asked by whoever starts something;
nothing here starts anything.
"""
