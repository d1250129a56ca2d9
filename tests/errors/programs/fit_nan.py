# With detect_nan the first loss that is no number stops.
import numpy as np

from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    x = X.copy()
    x[1, 2] = np.nan
    trainer.fit(x, Y, detect_nan=True, shuffle=False)
