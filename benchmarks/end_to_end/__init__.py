"""Whole pieces of work beside what people would pick instead: the same task, the same machine, in
turn.
"""
