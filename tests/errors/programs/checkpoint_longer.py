# Somebody appended to the file.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer, folder):
    file = folder / "model.safetensors"
    trainer.save(file)
    file.write_bytes(file.read_bytes() + b"0")
    trainer.load(file)
