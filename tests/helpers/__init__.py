"""What several test modules share: actor classes, a leak check, a runner for users' scripts.

Everything here imports by name in a proc as well, so that classes cross by reference. Tests live
elsewhere. Start with `waiting`.
"""
