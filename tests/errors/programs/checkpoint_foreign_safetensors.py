# A safetensors file of somebody else.
import numpy as np

from tests.errors.models import linear_trainer

import safetensors.numpy


def setup():
    return linear_trainer()


def mistake(trainer, folder):
    safetensors.numpy.save_file({"w": np.zeros((3, 2), "float32")}, folder / "model.safetensors")
    trainer.load(folder / "model.safetensors")
