# beta is less than 1.
from pullback.relax.training import optimizer


def mistake():
    optimizer.Adam(0.1, betas=(0.9, 1.0))
