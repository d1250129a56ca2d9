"""Mutants: does some test notice when one thing in the package is changed?

A mutant is the package with a single change: a sign in a rule, a tile's edge, a state that is not saved, a check that
is skipped, a field left out of a key. Each must be caught by a test of its own room, within two minutes. One that
survives shows a hole in the tests.

    python -m tests.mutants                          those of table.txt
    python -m tests.mutants --only simplify          those whose file or reason holds the word
    python -m tests.mutants --drawn 40 --room tir    changes drawn at random in the files of a room
"""
