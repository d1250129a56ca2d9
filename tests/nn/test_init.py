"""How parameters begin: by name, by pattern, by functions of single parameters, and by the trainer's seed."""

from __future__ import annotations

import math

import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, NoAttribute, ShapeError
from pullback.nn import init
from pullback.script import ir as I
from pullback.script import relax as R


class Net(nn.Module):
    def __init__(self):
        self.emb = nn.Embedding(50, 40)
        self.fc1, self.norm, self.fc2 = nn.Linear(40, 60), nn.LayerNorm(60), nn.Linear(60, 20)

    def forward(self, x):
        return self.fc2(self.norm(self.fc1(self.emb(x))))


X = np.zeros((2,), "int64")


def _values(seed=0, init=None, net=None):
    trainer = pullback.trainer(net or Net(), "mse", "sgd", example=X, seed=seed, init=init, target="debug")
    return {name: value.numpy() for name, value in trainer.state_dict().items()}


def _generator(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("name", "std", "bound"),
    [
        ("xavier_uniform", math.sqrt(2 / 300), math.sqrt(6 / 300)),
        ("xavier", math.sqrt(2 / 300), math.sqrt(6 / 300)),
        ("glorot_uniform", math.sqrt(2 / 300), math.sqrt(6 / 300)),
        ("xavier_normal", math.sqrt(2 / 300), math.inf),
        ("glorot_normal", math.sqrt(2 / 300), 2 * math.sqrt(2 / 300) / 0.8796),
        ("kaiming_uniform", math.sqrt(2 / 200), math.sqrt(6 / 200)),
        ("he_uniform", math.sqrt(2 / 200), math.sqrt(6 / 200)),
        ("kaiming_normal", math.sqrt(2 / 200), math.inf),
        ("he_normal", math.sqrt(2 / 200), 2 * math.sqrt(2 / 200) / 0.8796),
        ("lecun_normal", math.sqrt(1 / 200), 2 * math.sqrt(1 / 200) / 0.8796),
        ("variance_scaling", math.sqrt(1 / 200), 2 * math.sqrt(1 / 200) / 0.8796),
        ("lecun_uniform", math.sqrt(1 / 200), math.sqrt(3 / 200)),
        ("truncated_normal", 0.8796, 2.0),
        ("normal", 1.0, math.inf),
        ("uniform", math.sqrt(1 / 12), 1.0),
        ("orthogonal", math.sqrt(1 / 200), 1.0),
    ],
)
def test_names(name, std, bound):
    """Standard deviation and largest value of a weight of 100 outputs and 200 inputs."""
    values = nn.Parameter((100, 200), init=name).init(_generator(), (100, 200))
    assert values.std() == pytest.approx(std, rel=0.03)
    assert np.abs(values).max() <= bound * 1.001
    if bound < math.inf and name != "orthogonal":
        assert np.abs(values).max() > 0.97 * bound


def test_variance_scaling():
    for mode, n in (("fan_in", 200), ("fan_out", 100), ("fan_avg", 150)):
        for distribution in "truncated_normal", "untruncated_normal", "uniform":
            values = init.VarianceScaling(3.0, mode, distribution)(_generator(), (100, 200))
            assert values.std() == pytest.approx(math.sqrt(3 / n), rel=0.03)
    kernel = init.VarianceScaling(1.0, "fan_in", "uniform")(_generator(), (30, 20, 3, 3))
    assert kernel.std() == pytest.approx(math.sqrt(1 / 180), rel=0.03)
    assert np.abs(init.LecunUniform()(_generator(), (2, 1))).max() < math.sqrt(3)


def test_tail_of_a_normal():
    values = init.TruncatedNormal(1.0, 0.0, 3.0, 5.0)(_generator(), (4000,))
    assert 3 <= values.min() < 3.01
    assert values.mean() == pytest.approx(3.283, abs=0.02)  # (φ(3) - φ(5)) / (Φ(5) - Φ(3))


def test_patterns():
    """The first pattern that matches counts; what none matches begins as its layer says, and so do norms' weights under
    an initializer that needs fans."""
    plain = _values()
    values = _values(init={"emb*": init.Normal(0.02), "fc1.weight": 0.5, "*.weight": "kaiming_normal"})
    assert values["emb.weight"].std() == pytest.approx(0.02, rel=0.1)
    np.testing.assert_array_equal(values["fc1.weight"], np.full((60, 40), 0.5))
    assert values["fc2.weight"].std() == pytest.approx(math.sqrt(2 / 60), rel=0.1)
    np.testing.assert_array_equal(values["norm.weight"], np.ones(60))
    for name in "fc1.bias", "fc2.bias", "norm.bias":
        np.testing.assert_array_equal(values[name], plain[name])


def test_one_for_all():
    values = _values(init="orthogonal")
    np.testing.assert_allclose(values["fc2.weight"] @ values["fc2.weight"].T, np.eye(20), atol=1e-5)
    np.testing.assert_array_equal(values["norm.weight"], np.ones(60))
    assert (_values(init=init.Zeros)["fc1.bias"] == 0).all()
    own = _values(init={"fc?.*": lambda generator, shape: generator.uniform(7, 8, shape)})
    assert own["fc1.bias"].min() >= 7


def test_pattern_of_nothing():
    for call in (
        lambda: Net().init_parameters(0, {"fc3.*": "ones"}),
        lambda: _values(init={"*.weight": "ones", "head*": "zeros"}),
    ):
        with pytest.raises(
            ArgumentError, match=r"no parameter matches '(fc3.\*|head\*)'; the parameters are: emb.weight"
        ):
            call()


@I.ir_module
class Script:
    I.module_attrs({"param_num": 4, "state_num": 0})

    @R.function
    def backbone(
        x: R.Tensor(("n", 40), "float32"), w0: R.Tensor((40, 90), "float32"), b0: R.Tensor((90,), "float32"),
        scale: R.Tensor((90,), "float32"), w1: R.Tensor((90, 30), "float32"),
    ):  # fmt: skip
        with R.dataflow():
            h = R.nn.rms_norm(R.nn.relu(x @ w0 + b0), scale)
            out = h @ w1
            R.output(out)
        return out


def test_script_modules():
    """Weights for matmul are (inputs, outputs): fan_out counts their inputs."""

    def values(init):
        trainer = pullback.trainer(Script, "mse", "sgd", init=init, target="debug")
        return {name: value.numpy() for name, value in trainer.state_dict().items()}

    found = values({"w*": init.KaimingNormal(mode="fan_out", nonlinearity="relu"), "b0": 0.1})
    assert found["w0"].std() == pytest.approx(math.sqrt(2 / 40), rel=0.1)
    assert found["w1"].std() == pytest.approx(math.sqrt(2 / 90), rel=0.1)
    np.testing.assert_array_equal(found["b0"], np.full(90, 0.1, "float32"))
    np.testing.assert_array_equal(found["scale"], np.ones(90))
    found = values("kaiming_uniform")
    np.testing.assert_array_equal(found["b0"], np.zeros(90))  # no fans
    np.testing.assert_array_equal(found["scale"], np.ones(90))
    assert found["w1"].std() == pytest.approx(math.sqrt(2 / 30), rel=0.1)
    rest = values({"w0": "xavier"})
    assert rest["w1"].std() == pytest.approx(math.sqrt(2 / 120), rel=0.1)
    with pytest.raises(ArgumentError, match="no parameter matches 'v'"):
        values({"v": "ones"})


def test_functions_leave_the_seed_to_the_trainer():
    def made():
        net = Net()
        assert init.kaiming_normal_(net.fc1.weight, nonlinearity="relu") is net.fc1.weight
        init.constant_(net.fc1.bias, 0.25)
        return net

    first, again, other = _values(1, net=made()), _values(1, net=made()), _values(2, net=made())
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert not np.array_equal(first["fc1.weight"], other["fc1.weight"])
    assert first["fc1.weight"].std() == pytest.approx(math.sqrt(2 / 40), rel=0.1)
    assert (other["fc1.bias"] == 0.25).all()


def test_functions_with_a_generator():
    """What the user draws stays."""
    net = Net()
    drawn = init.normal_(net.fc1.weight, std=0.5, generator=np.random.default_rng(5)).numpy()
    np.testing.assert_array_equal(drawn, np.random.default_rng(5).normal(0, 0.5, (60, 40)).astype("float32"))
    np.testing.assert_array_equal(_values(3, net=net)["fc1.weight"], drawn)
    net.init_parameters(1)  # draws all anew
    assert not np.array_equal(net.fc1.weight.numpy(), drawn)


def test_functions_give_up_a_value():
    parameter = nn.Parameter(np.ones((3, 4), "float32"))
    assert parameter.has_value
    assert not init.xavier_uniform_(parameter).has_value
    assert len(np.unique(parameter.numpy())) == 12
    buffer = init.ones_(nn.Buffer((3,)))
    np.testing.assert_array_equal(buffer.numpy(), np.ones(3))


def test_apply():
    """PyTorch's way to begin a whole model."""

    def begin(module):
        if isinstance(module, nn.Linear):
            init.xavier_normal_(module.weight)
            init.zeros_(module.bias)

    values = _values(net=Net().apply(begin))
    assert values["fc1.weight"].std() == pytest.approx(math.sqrt(2 / 100), rel=0.1)
    assert (values["fc2.bias"] == 0).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: init.kaiming_normal_(nn.Parameter((3,))), ShapeError, r"a tensor of shape \(3,\) has no fans"),
        (lambda: init.orthogonal_(nn.Parameter((3,))), ShapeError, "is no matrix"),
        (lambda: init.eye_(nn.Parameter((3, 3, 3))), ShapeError, "is no matrix"),
        (lambda: init.sparse_(nn.Parameter((3, 3, 3)), 0.5), ShapeError, "is no matrix"),
        (lambda: init.dirac_(nn.Parameter((3, 3))), ShapeError, "is no convolution's weight"),
        (lambda: init.dirac_(nn.Parameter((3, 3, 3)), 2), ShapeError, "2 groups do not divide 3 outputs"),
        (lambda: init.normal_(np.zeros(3)), ArgumentError, "an nn.Parameter or nn.Buffer begins in a way, got ndarray"),
        (lambda: init.normal_(nn.Parameter((3,)), generator=3), ArgumentError, "generator must be NumPy's, got int"),
        (lambda: init.calculate_gain("gelu"), ArgumentError, "nonlinearity must be one of sigmoid, .* got 'gelu'"),
        (lambda: init.KaimingNormal(mode="in"), ArgumentError, "mode must be one of fan_in, fan_out, got 'in'"),
        (lambda: init.KaimingUniform(nonlinearity="swish"), ArgumentError, "nonlinearity must be one of"),
        (lambda: init.VarianceScaling(distribution="normal"), ArgumentError, "distribution must be one of"),
        (lambda: init.VarianceScaling(0), ArgumentError, "scale must be positive"),
        (lambda: init.Uniform(2, 1), ArgumentError, "low must be at most high, got 2 and 1"),
        (lambda: init.Normal(-1), ArgumentError, "std must be ≥ 0, got -1"),
        (lambda: init.Normal("0.1"), ArgumentError, "std must be a number, got '0.1'"),
        (lambda: init.TruncatedNormal(a=2, b=1), ArgumentError, "std must be positive and a below b"),
        (lambda: init.Sparse(1.5), ArgumentError, "sparsity must be from 0 to 1"),
        (lambda: nn.Parameter((3, 3), init=init.Sparse), ArgumentError, "Sparse needs arguments"),
        (lambda: nn.Parameter((3, 3), init="kaiming_norml"), ArgumentError, "did you mean kaiming_normal?"),
        (lambda: _values(init={"fc1.*": object()}), ArgumentError, "is no initializer"),
        (lambda: Net().init_parameters(0, {"emb*": "dirac"}), ShapeError, "emb.weight: .* no convolution's weight"),
        (lambda: init.kaiming_normal, NoAttribute, "did you mean kaiming_normal_?"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
