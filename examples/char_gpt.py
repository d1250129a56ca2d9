"""A character language model of two blocks: python examples/char_gpt.py TEXT_FILE [STEPS]."""

import sys
from pathlib import Path

import numpy as np

import pullback
from pullback import nn, optim

text = Path(sys.argv[1]).read_text(errors="replace")
steps, length, width = int(sys.argv[2]) if len(sys.argv) > 2 else 2000, 64, 128
characters, tokens = np.unique(list(text), return_inverse=True)


class GPT(nn.Module):
    def __init__(self):
        self.token, self.place = (
            nn.Embedding(len(characters), width),
            nn.Parameter((length, width), init=nn.init.Normal(0.02)),
        )
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.blocks, self.head = nn.TransformerEncoder(block, 2, nn.LayerNorm(width)), nn.Linear(width, len(characters))

    def forward(self, x):
        return self.head(self.blocks(self.token(x) + self.place, is_causal=True)).transpose(1, 2)


def batches(rows=32):
    rng = np.random.default_rng(0)
    while True:
        windows = tokens[rng.integers(0, len(tokens) - length, (rows, 1)) + np.arange(length + 1)]
        yield windows[:, :-1], windows[:, 1:]


rate = optim.SequentialLR([optim.LinearLR(1e-3, 0.01, 1.0, 100), optim.CosineAnnealingLR(1e-3, steps)], [100])
optimizer = optim.ClipByGlobalNorm(optim.AdamW(lr=rate, weight_decay=0.1), 1.0)
trainer = pullback.trainer(
    GPT(), "cross_entropy", optimizer, example=tokens[None, :length], init={"token.*": nn.init.Normal(0.02)}
)
trainer.fit(batches(), epochs=10, steps_per_epoch=steps // 10)
line = list(tokens[:length])
for _ in range(200):
    line.append(int(trainer.predict(np.array([line[-length:]])).numpy()[0, :, -1].argmax()))
print("".join(characters[line]))
