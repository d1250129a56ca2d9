# The file is an archive of NumPy.
import numpy as np

from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer, folder):
    np.savez(folder / "model.npz", w=np.zeros((3, 2), "float32"))
    trainer.load(folder / "model.npz")
