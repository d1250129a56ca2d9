# betas are a pair.
from pullback.relax.training import optimizer


def mistake():
    optimizer.Adam(0.1, betas=0.9)
