"""Benchmarks: pullback against its peers in one run (`python -m benchmarks --help`).

A process per side, rounds interleaved, the same threads and data, the result synchronised every step, medians.
Numbers that the project publishes come from here alone.
"""
