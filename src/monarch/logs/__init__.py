"""Logs of a program: what its ranks print and record, shown at the client, kept in files, read from other terminals.

Read `line` first: the model of one line, which everything else here takes or makes.
"""
