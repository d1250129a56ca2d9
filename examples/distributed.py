"""Several processes train one network on handwritten digits (needs scikit-learn):

python examples/distributed.py                                       one process
mpiexec -n 4 python examples/distributed.py zero2                    four, stage 2 of ZeRO
python -m pullback train examples/distributed.py --ranks 4 --restarts 3 --set distributed=zero2
"""

import sys

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pullback
from pullback import nn, optim


def make(distributed="data", epochs=10, lr=2e-3):
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x / 16, y, test_size=0.2, random_state=0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    trainer = pullback.trainer(net, "cross_entropy", optim.AdamW(lr=lr), example=x_train, distributed=distributed)
    data = {"x": x_train, "y": y_train, "validation": (x_test, y_test)}
    return trainer, {**data, "epochs": epochs, "batch_size": 64}


if __name__ == "__main__":
    trainer, arguments = make(*sys.argv[1:2])
    trainer.fit(**arguments)
    accuracy = trainer.evaluate(*arguments["validation"]).accuracy
    if pullback.distributed.is_first():
        print(f"test accuracy {accuracy:.3f} with {pullback.distributed.size()} ranks")
