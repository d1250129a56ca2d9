# At least one thread.
import pullback


def mistake():
    pullback.runtime.set_num_threads(0)
