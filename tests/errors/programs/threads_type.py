# The number of threads is an integer.
import pullback


def mistake():
    pullback.runtime.set_num_threads("two")
