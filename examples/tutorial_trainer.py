"""The reference tutorial, method 1: train an MLP on Fashion-MNIST with the Trainer API.

    python examples/tutorial_trainer.py                                      60,000 images, one epoch, four runs
    python examples/tutorial_trainer.py --rows 2000 --targets index --form new

The tutorial's two forms of the API run one after the other, each with class indices and with one-hot targets:

    new    train_mod = setup_trainer(MLP), pullback.compile, relax.VirtualMachine, Trainer(train_mod, vm, dev), .update
    older  Trainer(MLP, 6, setup_trainer), .build(target=, device=), .update_params

Corrections to the printed text, all of them:

 1. `tvm` is `pullback`.
 2. `Trainer(Backbone, 6, setup_trainer)`: `Backbone` is not defined anywhere; it is the module `MLP`.
 3. The print mixes two versions of the API: it makes `ex` and `vm`, which only `Trainer(train_mod, vm, dev)` takes, and
    then uses the older constructor, which needs neither. They are the two forms here.
 4. `label_sinfo` says int64 of shape (batch_size, 10), but the loader yields one-hot *floats*. Here the declared type
    is the type of the data: int64 (batch_size,) for indices, float32 (batch_size, 10) for one-hot targets.
 5. `SGD(0.01, weight_decay=0.01)` on the *summed* loss of 64 rows is a step of 0.64 on their mean. It is unstable:
    with the seeds 0 to 3 the accuracy after one epoch is 69, 20, 71 and 53 % (a float64 program in NumPy is as
    unstable). Here lr is 0.001, which gives 82 to 83 %.
 6. The torchvision loader is replaced by NumPy batches, so `data.numpy()` and `target.numpy()` are `data` and `target`,
    and the accuracy compares with `argmax` of one-hot targets or with the indices themselves.
 7. `batch_idx == len(train_loader)` is never true; meant is the last batch, `len(train_loader) - 1`.
 8. `loss` and `target` name the loss object and the compilation target, and then, in the loops, a tensor and a batch;
    the loops use `loss_value` and `labels`.
 9. The line after training says "Train Epoch" for a result on test data. Here it says "Epoch".
10. The print calls the functions of the trainer module `predict`, `loss`, `loss_adjoint` and `update_params`; the names
    are `backbone`, `backbone_loss`, `backbone_loss_adjoint` and `optimizer` (the new form prints them).
11. The random initial values have a seed, so that a run can be repeated.
12. The sample image is not drawn (`python -m pullback demo` draws some); its class is printed as in the tutorial.
13. Unused imports (LegalizeOps, torch) are gone.

`xaiver_uniform_init_params` is the tutorial's spelling. It works; `xavier_uniform_init_params` does too.
"""

from __future__ import annotations

import argparse

import numpy as np

import pullback
from pullback import relax
from pullback.demo import fashion_mnist
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.training.optimizer import SGD
from pullback.relax.training.setup_trainer import SetupTrainer
from pullback.relax.training.trainer import Trainer
from pullback.script import ir as I
from pullback.script import relax as R

batch_size = 64


class DataLoader:
    """Batches of NumPy arrays, as many as are full; `shuffle` draws a new order each time."""

    def __init__(self, dataset, labels, batch_size, shuffle):
        self.dataset, self.labels, self.batch_size = dataset, labels, batch_size
        self.generator = np.random.default_rng(0) if shuffle else None

    def __len__(self):
        return len(self.dataset) // self.batch_size

    def __iter__(self):
        rows = len(self.dataset)
        order = self.generator.permutation(rows) if self.generator else np.arange(rows)
        for k in range(len(self)):
            chosen = order[k * self.batch_size : (k + 1) * self.batch_size]
            yield self.dataset[chosen], self.labels[chosen]


@I.ir_module
class MLP:
    I.module_attrs({"param_num": 6, "state_num": 0})

    @R.function
    def backbone(
        x: R.Tensor((batch_size, 784), "float32"),
        w0: R.Tensor((784, 128), "float32"),
        b0: R.Tensor((128,), "float32"),
        w1: R.Tensor((128, 128), "float32"),
        b1: R.Tensor((128,), "float32"),
        w2: R.Tensor((128, 10), "float32"),
        b2: R.Tensor((10,), "float32"),
    ) -> R.Tensor((batch_size, 10), "float32"):
        with R.dataflow():
            lv0 = R.matmul(x, w0)
            lv1 = R.add(lv0, b0)
            lv2 = R.nn.relu(lv1)
            lv3 = R.matmul(lv2, w1)
            lv4 = R.add(lv3, b1)
            lv5 = R.nn.relu(lv4)
            lv6 = R.matmul(lv5, w2)
            out = R.add(lv6, b2)
            R.output(out)
        return out


def make_setup_trainer(targets, lr):
    """The pass that makes a trainer module from the model: a loss, an optimizer, and the types that the loss takes."""
    loss = CrossEntropyLoss(reduction="sum")
    opt = SGD(lr, weight_decay=0.01)
    out_sinfo = relax.TensorStructInfo((batch_size, 10), "float32")
    if targets == "one-hot":
        label_sinfo = relax.TensorStructInfo((batch_size, 10), "float32")
    else:
        label_sinfo = relax.TensorStructInfo((batch_size,), "int64")
    return SetupTrainer(loss, opt, [out_sinfo, label_sinfo])


def make_trainer(form, setup_trainer):
    """A trainer in the new form of the API, or in the older one."""
    target = "llvm"
    dev = pullback.device(target, 0)
    if form == "new":
        train_mod = setup_trainer(MLP)
        functions = [name for name, f in train_mod.items() if isinstance(f, relax.Function)]
        print(f"The trainer module has the functions {', '.join(functions)}")
        ex = pullback.compile(train_mod, target)
        vm = relax.VirtualMachine(ex, dev, profile=True)
        return Trainer(train_mod, vm, dev)
    trainer = Trainer(MLP, 6, setup_trainer)
    # build the IRModule in the trainer
    trainer.build(target="llvm", device=pullback.cpu(0))
    return trainer


def train(trainer, form, train_loader, test_loader, epochs, log_interval=200):
    """The tutorial's loop; returns the accuracy on the test data."""
    trainer.xaiver_uniform_init_params(seed=0)
    step = trainer.update if form == "new" else trainer.update_params
    accuracy = float("nan")
    for epoch in range(epochs):
        for batch_idx, (data, labels) in enumerate(train_loader):
            loss_value = step(data, labels)
            if batch_idx % log_interval == 0 or batch_idx == len(train_loader) - 1:
                print(
                    f"Train Epoch: {epoch} [{batch_idx * len(data)}/{len(train_loader.dataset)} "
                    f"({100.0 * batch_idx / len(train_loader):.0f}%)]\tLoss: {loss_value.numpy():.2f}"
                )

        total, correct = 0, 0
        for data, labels in test_loader:
            predict = trainer.predict(data)  # batch_size * 10
            total += len(data)
            correct += np.sum(predict.numpy().argmax(1) == as_indices(labels))
        accuracy = 100.0 * correct / total
        print(f"Epoch: {epoch} Accuracy on test dataset: {accuracy:.2f}%")
    return accuracy


def as_one_hot(labels):
    return np.eye(10, dtype="float32")[labels]


def as_indices(labels):
    return labels.argmax(1) if labels.ndim == 2 else labels


def main():
    parser = argparse.ArgumentParser(description="The tutorial's method 1: the Trainer API.")
    parser.add_argument("--epochs", type=int, default=1, help="times through the training images (the tutorial: 5)")
    parser.add_argument("--rows", type=int, help="use only so many training images, and at most so many test images")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate (the tutorial prints 0.01)")
    parser.add_argument("--targets", choices=["index", "one-hot", "both"], default="both")
    parser.add_argument("--form", choices=["new", "older", "both"], default="both")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")
    if options.rows is not None and options.rows < batch_size:
        parser.error(f"--rows must be at least {batch_size}, one batch")

    images = fashion_mnist.load()
    print(images.source)
    rows = slice(options.rows)
    class_names = images.class_names
    print("Class:", class_names[images.y_train[0]])

    for form in ("new", "older") if options.form == "both" else (options.form,):
        for targets in ("index", "one-hot") if options.targets == "both" else (options.targets,):
            print(f"\n--- {form} form, {targets} targets")
            y_train, y_test = images.y_train[rows], images.y_test[rows]
            if targets == "one-hot":
                y_train, y_test = as_one_hot(y_train), as_one_hot(y_test)
            train_loader = DataLoader(images.x_train[rows], y_train, batch_size=batch_size, shuffle=True)
            test_loader = DataLoader(images.x_test[rows], y_test, batch_size=batch_size, shuffle=False)
            trainer = make_trainer(form, make_setup_trainer(targets, options.lr))
            train(trainer, form, train_loader, test_loader, options.epochs)


if __name__ == "__main__":
    main()
