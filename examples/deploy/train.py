"""Trains a perceptron on scikit-learn's digits, and exports it as a C library: python train.py [folder]."""

import sys

import numpy as np
from sklearn.datasets import load_digits

import pullback
from pullback import nn, optim


def make(width=32):
    """What `python -m pullback build train.py:make` takes: a trainer and its data."""
    digits = load_digits()
    x, y = (digits.data / 16).astype(np.float32), digits.target
    net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    trainer = pullback.trainer(net, "cross_entropy", optim.Adam(lr=optim.RunTime(1e-2)), example=x)
    return trainer, x[:1500], y[:1500], {"batch_size": 16, "epochs": 2}


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "dist"
    trainer, x, y, arguments = make()
    trainer.fit(x, y, **arguments)
    digits = load_digits()
    (digits.data[1500:] / 16).astype("<f4").tofile("images.bin")  # what the device sees: 297 images that are new
    digits.target[1500:].astype("<i8").tofile("labels.bin")
    print(trainer.export(folder, name="digits", batch_size=16).table())
