# A tensor holds numbers.
import pullback


def mistake():
    pullback.tensor(["a", "b"])
