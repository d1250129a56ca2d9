"""Augmentation layers: at work in training alone, each step and image anew, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import nn, optim
from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn import aug
from pullback.nn import functional as F
from pullback.relax import TensorStructInfo, op

SOURCE = np.random.default_rng(0)
X, Y = SOURCE.normal(size=(20, 2, 5, 6)).astype("float32"), SOURCE.integers(0, 3, 20)
LAYERS = {
    "flip": lambda: aug.RandomFlip("horizontal_and_vertical"),
    "horizontal": lambda: aug.RandomHorizontalFlip(),
    "vertical": lambda: aug.RandomVerticalFlip(0.3),
    "crop": lambda: aug.RandomCrop((5, 6), padding=2),
    "shift": lambda: aug.RandomShift((1, 2), "reflect"),
    "translation": lambda: aug.RandomTranslation(0.2, (-0.5, 0), fill=1.0),
}


def model(*layers: nn.Module) -> nn.Module:
    return nn.Sequential({**{f"aug{i}": layer for i, layer in enumerate(layers)}, "flat": nn.Flatten(),
                          "head": nn.Linear(60, 3)})  # fmt: skip


def made(*layers: nn.Module, seed: int = 0, lr: float = 1e-30, target: str = "debug", example=X):
    """A trainer whose losses differ, with a learning rate of almost nothing, by what is drawn alone."""
    return pullback.trainer(
        model(*layers), "cross_entropy", optim.SGD(lr=lr), example=example, seed=seed, target=target
    )


def losses(trainer, steps: int = 3) -> list[float]:
    return [float(trainer.update(X[:8], Y[:8])) for _ in range(steps)]


@pytest.mark.parametrize("name", LAYERS)
def test_only_training_draws(name):
    trainer, plain = made(LAYERS[name]()), made()
    plain.load_state_dict(trainer.state_dict())
    assert len(set(losses(trainer))) == 3
    assert len(set(losses(plain))) == 1
    np.testing.assert_array_equal(trainer.predict(X).numpy(), plain.predict(X).numpy())
    assert trainer.evaluate(X, Y) == plain.evaluate(X, Y)
    np.testing.assert_array_equal(LAYERS[name]()(X).numpy(), X)


def test_a_seed_says_what_is_drawn():
    layers = [make() for make in LAYERS.values()]
    first = losses(made(*layers))
    assert first == losses(made(*layers))
    assert first != losses(made(*layers, seed=1))


@pytest.mark.parametrize("example", [X, TensorStructInfo((8, 2, 5, 6), "float32")], ids=["any rows", "eight rows"])
def test_fit_by_native_code(example):
    """With a smaller last batch, of models of any number of rows and of a fixed one."""
    trainer = made(*(make() for make in LAYERS.values()), lr=0.01, target="llvm", example=example)
    history = trainer.fit(X, Y, epochs=8, batch_size=8)
    assert history.epochs[-1].loss < history.epochs[0].loss


def test_steps_are_alike_on_both_backends():
    """The same images are flipped and moved: the losses are the same but for the order of sums."""
    layers = [LAYERS["flip"](), LAYERS["crop"]()]
    np.testing.assert_allclose(losses(made(*layers)), losses(made(*layers, target="llvm")), rtol=1e-5)


class Shifted(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        self.layers, self.b = nn.Sequential(*layers), nn.Parameter((6,))

    def forward(self, x):
        return self.layers(x) + self.b


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_targets_are_mixed_as_inputs_are(target):
    def loss(prediction, x, alpha=0.5):
        return ((prediction - aug.mixup(x, alpha)) ** 2).mean()

    def other(prediction, x):
        return loss(prediction, x, 0.4)

    def mixing(loss):
        net = Shifted(aug.Mixup(0.5))
        return pullback.trainer(net, loss, optim.SGD(lr=1e-30), example=X, target=target)

    images = X[:8]
    same, different = mixing(loss), mixing(other)
    assert [float(same.update(images, images)) for _ in range(3)] == [0, 0, 0]
    found = [float(different.update(images, images)) for _ in range(3)]
    assert min(found) > 0 and len(set(found)) == 3
    for trainer in (same, different):
        assert trainer.evaluate(X, X).loss == 0
        np.testing.assert_array_equal(trainer.predict(X).numpy(), X)


def test_mixup_of_classes():
    def loss(logits, labels):
        return op.nn.cross_entropy(logits, aug.mixup(F.one_hot(labels, 3).astype("float32")))

    net = model(aug.Mixup())
    trainer = pullback.trainer(net, loss, optim.SGD(lr=0.05), example=X, targets=Y, target="debug")
    before = trainer.evaluate(X, Y).loss
    trainer.fit(X, Y, epochs=5, batch_size=8)
    plain = made()
    plain.load_state_dict(trainer.state_dict())
    assert trainer.evaluate(X, Y).loss == pytest.approx(plain.evaluate(X, Y).loss, rel=1e-6)
    assert trainer.evaluate(X, Y).loss < before


def test_normalize():
    found = aug.Normalize((0.5, 1.0), (2.0, 0.25))(X).numpy()
    expected = (X - np.array([0.5, 1.0]).reshape(2, 1, 1)) / np.array([2.0, 0.25]).reshape(2, 1, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(aug.Normalize(0.5, 2.0)(X).numpy(), (X - 0.5) / 2, rtol=1e-6)
    np.testing.assert_allclose(aug.Normalize(range(6), 1.0, axis=-1)(X).numpy(), X - np.arange(6), rtol=1e-6)
    images = np.arange(60, dtype=np.uint8).reshape(1, 2, 5, 6)
    np.testing.assert_allclose(
        nn.Sequential(aug.RandomFlip(), aug.Normalize(0.0, 255.0), nn.Identity())(images.astype("float32")).numpy(),
        images / 255.0, rtol=1e-6,
    )  # fmt: skip
    assert not aug.Normalize((0.5, 1.0), 1.0).state_dict()
    assert len(set(losses(made(aug.Normalize((0.5, 1.0), 2.0))))) == 1


def test_pictures_of_bytes_become_floats():
    images = SOURCE.integers(0, 256, X.shape).astype("uint8")
    trainer = made(aug.RandomFlip(), aug.Normalize(127.5, 127.5), lr=0.01, example=images)
    trainer.fit(images, Y, epochs=1, batch_size=8)
    assert trainer.predict(images).shape == (20, 3)


REFUSED = {
    "mode": (lambda: aug.RandomFlip("diagonal"), "mode must be one of horizontal, vertical, horizontal_and_vertical"),
    "p": (lambda: aug.RandomFlip(p=2), "p must be a number from 0 to 1, got 2"),
    "size": (lambda: aug.RandomCrop((1, 2, 3)), "size must be an int or 2 ints, not less than 1"),
    "padding mode": (lambda: aug.RandomCrop(3, padding_mode="edge"), "padding_mode must be one of constant, reflect"),
    "pixels": (lambda: aug.RandomShift(-1), "pixels must be an int or 2 ints, not less than 0"),
    "factor": (lambda: aug.RandomTranslation(0.1, (0.1, 0.2)), "width_factor must be a number from 0 to 1, or"),
    "alpha": (lambda: aug.Mixup(0), "alpha must be a positive, finite number, got 0"),
    "std": (lambda: aug.Normalize(0.0, (1.0, 0.0)), "std must be above 0"),
    "mean": (lambda: aug.Normalize("grey", 1.0), "mean must be a number, or one for each channel, got 'grey'"),
    "numbers": (lambda: aug.Normalize((1, 2, 3), (1, 2)), "must have as many numbers, got 3 and 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_arguments(name):
    make, message = REFUSED[name]
    with pytest.raises(ArgumentError) as caught:
        make()
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (aug.RandomFlip(), (4, 5), r"RandomFlip takes images \(N, …, H, W\), with the axis N"),
        (aug.RandomCrop(8, 1), (2, 1, 5, 9), r"a window of \(8, 8\) has no room in padded images of \(7, 11\)"),
        (aug.Normalize((1, 2, 3), 1.0), (2, 1, 4, 4), r"axis 1 of .* must have size 3"),
    ],
)
def test_refused_images(layer, shape, message):
    with pytest.raises(ShapeError, match=message):
        nn.Sequential(layer).export(np.zeros(shape, "float32"))


def test_names_that_do_not_exist():
    with pytest.raises(AttributeError, match=r"pullback\.nn\.aug has no 'RandomFlips': did you mean RandomFlip\?"):
        _ = aug.RandomFlips
