"""A character language model of two recurrent layers: python examples/char_lstm.py TEXT_FILE [STEPS]."""

import sys
from pathlib import Path

import numpy as np

import pullback
from pullback import nn, optim

text = Path(sys.argv[1]).read_text(errors="replace")
steps, length, width = int(sys.argv[2]) if len(sys.argv) > 2 else 2000, 64, 128
characters, tokens = np.unique(list(text), return_inverse=True)


class Model(nn.Module):
    def __init__(self):
        self.token = nn.Embedding(len(characters), width)
        self.layers = nn.LSTM(width, width, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, len(characters))

    def forward(self, x):
        return self.head(self.layers(self.token(x))[0]).transpose(1, 2)


def batches(rows=32):
    rng = np.random.default_rng(0)
    while True:
        windows = tokens[rng.integers(0, len(tokens) - length, (rows, 1)) + np.arange(length + 1)]
        yield windows[:, :-1], windows[:, 1:]


optimizer = optim.ClipByGlobalNorm(optim.AdamW(lr=optim.CosineAnnealingLR(5e-3, steps)), 1.0)
trainer = pullback.trainer(Model(), "cross_entropy", optimizer, example=tokens[None, :length])
trainer.fit(batches(), epochs=10, steps_per_epoch=steps // 10)
line = list(tokens[:length])
for _ in range(200):
    line.append(int(trainer.predict(np.array([line[-length:]])).numpy()[0, :, -1].argmax()))
print("".join(characters[line]))
