"""An autoencoder with a loss of two outputs: python examples/autoencoder.py (needs scikit-learn)."""

from sklearn.datasets import load_digits

import pullback
from pullback import nn
from pullback.nn import functional as F

x = load_digits().data / 16


class Autoencoder(nn.Module):
    def __init__(self):
        self.encode = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 8))
        self.decode = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 64), nn.Sigmoid())

    def forward(self, x):
        code = self.encode(x)
        return self.decode(code), code


def loss(picture, code, x):
    return F.binary_cross_entropy(picture, x) + 1e-3 * code.abs().mean()


trainer = pullback.trainer(Autoencoder(), loss, "adamw", example=x)
trainer.fit(x, x, epochs=20)
picture, code = trainer.predict(x[:5])
print(f"loss {trainer.evaluate(x, x).loss:.4f}, mean error {abs(picture.numpy() - x[:5]).mean():.4f}")
