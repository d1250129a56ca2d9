"""Fine-tuning with a frozen body: digits 5 to 9 with the filters of 0 to 4: python examples/finetune.py."""

from sklearn.datasets import load_digits

import pullback
from pullback import nn, optim

x, y = load_digits(return_X_y=True)
x = x.reshape(-1, 1, 8, 8) / 16
body = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
first = pullback.trainer(nn.Sequential(body, nn.Linear(512, 5)), "cross_entropy", "adam", example=x)
first.fit(x[y < 5], y[y < 5], epochs=5)
body.requires_grad_(False)  # the body keeps what it has learnt
second = pullback.trainer(nn.Sequential(body, nn.Linear(512, 5)), "cross_entropy", optim.Adam(lr=1e-2), example=x)
second.fit(x[y >= 5], y[y >= 5] - 5, epochs=5, validation_split=0.3)
print(f"accuracy {second.history['val_accuracy'][-1]:.3f}")
