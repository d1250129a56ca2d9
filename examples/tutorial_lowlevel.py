"""The reference tutorial, method 2: train an MLP on Fashion-MNIST with losses, AD and optimizers, without a Trainer.

    python examples/tutorial_lowlevel.py                                     60,000 images, one epoch, two runs
    python examples/tutorial_lowlevel.py --rows 2000 --targets index --quiet

First comes the tutorial's single step, as printed, then what it leaves to the reader: training for some epochs. Both
run with class indices and with one-hot targets.

Corrections to the printed text, all of them:

 1. `tvm` is `pullback`.
 2. `Backbone` is not defined anywhere. Here it is a copy of the module `MLP`, because the text adds functions to it.
 3. `Backbone["predict"]`: the function that was defined is called `backbone`.
 4. `params = Backbone["loss"].params[:6]`: the first parameter is `x`, so these would be `x, w0, b0, w1, b1, w2`. The
    parameters of the model are `params[1:7]`.
 5. `tuple_object(params_list)` is not defined; a Python tuple is what is needed.
 6. "The input should be (*param_input_tuple, x_input, y_input)": `x` is the first parameter, so it is
    `(x_input, *param_input_tuple, y_input)`.
 7. `print(loss.numpy)` prints a method: `loss.numpy()`.
 8. The label type was int64 of shape (batch_size, 10), but the loader yields one-hot *floats*. Here the declared type
    is the type of the data: int64 (batch_size,) for indices, float32 (batch_size, 10) for one-hot. At this level
    nothing casts: a function takes exactly its declared dtypes.
 9. Parameters that are all ones make all logits of a row equal and all hidden units of a layer alike: the gradients of
    all layers but the last vanish (up to rounding). One step shows no more than that it runs, and prints the last bias,
    number 5, in place of number 0. Training starts from random values.
10. `SGD(0.1)` on the *summed* loss of 64 rows is a step of 6.4 on their mean, and diverges. The single step has the
    printed 0.1; training has 0.001, in a second optimizer function `SGD_small`.
11. The torchvision loader is replaced by NumPy arrays.
12. "Arguments should be NDArray or ADT objects" holds no longer: the machine takes NumPy arrays and Python tuples, too.
    The single step makes tensors as printed; training passes slices of the arrays.
"""

from __future__ import annotations

import argparse

import numpy as np

import pullback
from pullback import relax
from pullback.demo import fashion_mnist
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.transform import LegalizeOps
from pullback.script import ir as I
from pullback.script import relax as R

batch_size = 64


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


def build(targets, lr, quiet):
    """The module with loss, gradient and optimizers, compiled: the virtual machine, `params`, and both optimizers."""
    Backbone = MLP.copy()
    out_sinfo = relax.TensorStructInfo((batch_size, 10), "float32")
    if targets == "one-hot":
        label_sinfo = relax.TensorStructInfo((batch_size, 10), "float32")
    else:
        label_sinfo = relax.TensorStructInfo((batch_size,), "int64")

    func = CrossEntropyLoss(reduction="sum")(out_sinfo, label_sinfo)
    Backbone["loss"] = relax.training.utils.append_loss(Backbone["backbone"], func)

    params = Backbone["loss"].params[1:7]
    Backbone = relax.transform.Gradient(Backbone.get_global_var("loss"), require_grads=params)(Backbone)

    opt = relax.optimizer.SGD(0.1).init(params)
    Backbone["SGD"] = opt.get_function()
    small = relax.optimizer.SGD(lr).init(params)
    Backbone["SGD_small"] = small.get_function()

    if not quiet:
        print(func)
        Backbone.show()

    # Build and legalize module
    lowered_mod = LegalizeOps()(Backbone)
    ex = relax.vm.build(lowered_mod, target="llvm")
    vm = relax.VirtualMachine(ex, pullback.cpu())
    return vm, params, opt, small


def _get_shape_as_int_list(var):
    return [int(val) for val in var.struct_info.shape]


def one_step(vm, params, opt, x_batch, y_batch):
    """The tutorial's single step, from parameters that are ones."""
    params_list = [pullback.nd.array(np.ones(_get_shape_as_int_list(i), "float32")) for i in params]
    param_input_tuple = tuple(params_list)
    x_input = pullback.nd.array(x_batch)
    y_input = pullback.nd.array(y_batch)

    # forward and find the gradient
    loss, param_grad_tuple = vm["loss_adjoint"](x_input, *param_input_tuple, y_input)
    # update parameters
    param_input_tuple, opt.state = vm["SGD"](param_input_tuple, param_grad_tuple, opt.state)

    print("loss:", loss.numpy())
    print("parameters, gradients:", len(param_input_tuple), len(param_grad_tuple))
    print("b2:", param_input_tuple[5])
    print("gradient of b2:", param_grad_tuple[5])
    print("steps:", opt.state[0].numpy())


def train(vm, params, opt, images, labels, test_images, test_labels, epochs):
    """The step, repeated over batches; after each epoch the accuracy on the test data."""
    generator = np.random.default_rng(0)
    values = tuple(pullback.nd.array(initial_value(_get_shape_as_int_list(p), generator)) for p in params)
    for epoch in range(epochs):
        order, total = generator.permutation(len(images)), 0.0
        batches = len(images) // batch_size
        for k in range(batches):
            rows = order[k * batch_size : (k + 1) * batch_size]
            loss, gradients = vm["loss_adjoint"](images[rows], *values, labels[rows])
            values, opt.state = vm["SGD_small"](values, gradients, opt.state)
            total += float(loss.numpy())

        right, count = 0, len(test_images) // batch_size * batch_size
        for k in range(0, count, batch_size):
            logits = vm["backbone"](test_images[k : k + batch_size], *values)
            right += np.sum(logits.numpy().argmax(1) == as_indices(test_labels[k : k + batch_size]))
        print(
            f"Epoch: {epoch} Steps: {opt.state[0].numpy()} Mean loss: {total / (batches * batch_size):.4f} "
            f"Accuracy on test dataset: {100.0 * right / count:.2f}%"
        )


def initial_value(shape, generator):
    """Weights from Glorot and Bengio's uniform distribution, biases zero."""
    if len(shape) == 1:
        return np.zeros(shape, "float32")
    bound = np.sqrt(6.0 / sum(shape))
    return generator.uniform(-bound, bound, shape).astype("float32")


def as_one_hot(labels):
    return np.eye(10, dtype="float32")[labels]


def as_indices(labels):
    return labels.argmax(1) if labels.ndim == 2 else labels


def main():
    parser = argparse.ArgumentParser(description="The tutorial's method 2: losses, AD and optimizers by hand.")
    parser.add_argument("--epochs", type=int, default=1, help="times through the training images")
    parser.add_argument("--rows", type=int, help="use only so many training images, and at most so many test images")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of the training after the single step")
    parser.add_argument("--targets", choices=["index", "one-hot", "both"], default="both")
    parser.add_argument("--quiet", action="store_true", help="do not print the module")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")
    if options.rows is not None and options.rows < batch_size:
        parser.error(f"--rows must be at least {batch_size}, one batch")

    data = fashion_mnist.load()
    print(data.source)
    rows = slice(options.rows)
    for targets in ("index", "one-hot") if options.targets == "both" else (options.targets,):
        print(f"\n--- {targets} targets")
        vm, params, opt, small = build(targets, options.lr, options.quiet)
        y_train, y_test = data.y_train[rows], data.y_test[rows]
        if targets == "one-hot":
            y_train, y_test = as_one_hot(y_train), as_one_hot(y_test)
        x_train, x_test = data.x_train[rows], data.x_test[rows]
        one_step(vm, params, opt, x_train[:batch_size], y_train[:batch_size])
        train(vm, params, small, x_train, y_train, x_test, y_test, options.epochs)


if __name__ == "__main__":
    main()
