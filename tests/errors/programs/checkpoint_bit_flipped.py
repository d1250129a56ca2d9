# One bit of a parameter is flipped.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer, folder):
    file = folder / "model.safetensors"
    trainer.save(file)
    data = bytearray(file.read_bytes())
    data[-3] ^= 16
    file.write_bytes(data)
    trainer.load(file)
