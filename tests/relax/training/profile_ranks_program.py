"""A program of test_profile_ranks.py, run by each rank of an MPI job: profiles a step, and says what its rank saw."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import pullback
from pullback import nn
from pullback.runtime.ranks import current

x, y = np.random.default_rng(0).normal(size=(8, 6)), np.arange(8) % 3
net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
trainer = pullback.trainer(net, "cross_entropy", "adam", example=x, seed=0, distributed="zero2")
before = current().waited()
report = trainer.profile_step(x, y)
folder = Path(sys.argv[1])
report.chrome_trace(folder / f"trace{current().rank}.json")
said = {
    "rank": current().rank,
    "waited": current().waited() - before,
    "text": str(report),
    "collectives": [[(t.name, t.bytes, t.sent) for t in own.collectives] for own in report.ranks],
    "told": [own.waited for own in report.ranks],
}
(folder / f"rank{current().rank}.json").write_text(json.dumps(said))
