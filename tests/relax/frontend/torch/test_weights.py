"""Training that goes on in PyTorch, and PyTorch's here: the next ten losses are those of the side that it came from."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import pullback  # noqa: E402
from pullback import optim  # noqa: E402
from pullback.ir import ArgumentError, ShapeError  # noqa: E402
from pullback.relax.frontend.torch.weights import state_dict  # noqa: E402

STEPS = 10
RTOL = 2e-4  # of float32, ten steps of Adam later

# Here, and in PyTorch.
OPTIMIZERS = {
    "sgd": (lambda: optim.SGD(0.05, weight_decay=0.01), lambda p: torch.optim.SGD(p, 0.05, weight_decay=0.01)),
    "momentum": (
        lambda: optim.SGD(0.05, 0.9, dampening=0.3),
        lambda p: torch.optim.SGD(p, 0.05, 0.9, dampening=0.3),
    ),
    "nesterov": (
        lambda: optim.SGD(0.05, 0.9, weight_decay=0.01, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.05, 0.9, weight_decay=0.01, nesterov=True),
    ),
    "adam": (
        lambda: optim.Adam(1e-2, (0.8, 0.99), eps=1e-6),
        lambda p: torch.optim.Adam(p, 1e-2, (0.8, 0.99), eps=1e-6),
    ),
    "amsgrad": (lambda: optim.Adam(1e-2, amsgrad=True), lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True)),
    "adamw": (lambda: optim.AdamW(1e-2, weight_decay=0.1), lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1)),
}


class Net(pullback.nn.Module):
    def __init__(self):
        self.inner, self.norm = pullback.nn.Linear(6, 8), pullback.nn.BatchNorm1d(8)
        self.fc = pullback.nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(pullback.nn.functional.relu(self.norm(self.inner(x))))


class TorchNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(torch.relu(self.norm(self.inner(x))))


@pytest.fixture
def batches():
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(8, 6)).astype("float32"), rng.integers(0, 5, 8)) for _ in range(3 + STEPS)]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def trainer_of(optimizer, model=None, **options):
    x = np.zeros((2, 6), "float32")
    return pullback.trainer(model or Net(), "cross_entropy", optimizer, example=x, **options)


def trained_here(trainer, batches):
    return [float(trainer.update(x, y)) for x, y in batches]


def trained_there(net, optimizer, batches):
    losses = []
    for x, y in batches:
        loss = nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", list(OPTIMIZERS))
@pytest.mark.parametrize("before", [3, 0], ids=["after steps", "at once"])
def test_pytorch_goes_on(name, before, batches):
    ours, theirs = OPTIMIZERS[name]
    trainer, net = trainer_of(ours()), TorchNet()
    trained_here(trainer, batches[:before])
    optimizer = theirs(net.parameters())
    assert trainer.to_torch(net, optimizer) is net
    for tensor_name, value in net.state_dict().items():
        assert torch.equal(value, torch.from_dlpack(trainer.state_dict()[tensor_name])), tensor_name
    np.testing.assert_allclose(
        trained_there(net, optimizer, batches[3:]), trained_here(trainer, batches[3:]), rtol=RTOL
    )
    assert trainer.steps == before + STEPS


@pytest.mark.parametrize("form", ["optimizer", "state dicts"])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_the_trainer_goes_on(name, form, batches):
    ours, theirs = OPTIMIZERS[name]
    trainer, net = trainer_of(ours()), TorchNet()
    optimizer = theirs(net.parameters())
    trained_there(net, optimizer, batches[:3])
    if form == "optimizer":
        trainer.from_torch(net, optimizer)
    else:
        trainer.from_torch(net.state_dict(), optimizer.state_dict())
    assert trainer.states["norm.num_batches_tracked"].item() == 3
    np.testing.assert_allclose(
        trained_here(trainer, batches[3:]), trained_there(net, optimizer, batches[3:]), rtol=RTOL
    )


def test_there_and_back_is_the_same(batches):
    trainer, other, net = trainer_of(optim.AdamW(1e-2)), trainer_of(optim.AdamW(1e-2), seed=1), TorchNet()
    trained_here(trainer, batches[:3])
    optimizer = torch.optim.AdamW(net.parameters(), 0.5)  # other hyperparameters: they become the trainer's
    trainer.to_torch(net, optimizer)
    assert optimizer.param_groups[0]["lr"] == 1e-2
    other.from_torch(net, optimizer)
    assert other.steps == 3
    for name, value in trainer.optimizer_state_dict().items():
        np.testing.assert_allclose(other.optimizer_state_dict()[name].numpy(), value.numpy(), rtol=1e-15)
    assert trained_here(trainer, batches[3:6]) == trained_here(other, batches[3:6])


def test_groups_and_frozen_parameters(batches):
    groups = {"norm.*": {"frozen": True}, "*bias": {"weight_decay": 0, "betas": (0.5, 0.9)}}
    trainer, net = trainer_of(optim.ParameterGroups(optim.AdamW(1e-2), groups)), TorchNet()
    trained_here(trainer, batches[:3])
    assert "beta1_prod[*bias]" in trainer.optimizer_state_dict()
    net.norm.requires_grad_(False)
    parts = [
        [p for n, p in net.named_parameters() if p.requires_grad and n.endswith(end)] for end in ("weight", "bias")
    ]
    optimizer = torch.optim.AdamW([{"params": part} for part in parts])
    trainer.to_torch(net, optimizer)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.01, 0]
    other = trainer_of(optim.ParameterGroups(optim.AdamW(1e-2), groups))
    other.from_torch(net, optimizer)
    expected = trained_here(trainer, batches[3:])
    np.testing.assert_allclose(trained_there(net, optimizer, batches[3:]), expected, rtol=RTOL)
    np.testing.assert_allclose(trained_here(other, batches[3:]), expected, rtol=1e-6)
    assert torch.equal(net.norm.weight, torch.ones(8))


def test_run_time_values_take_those_of_pytorch(batches):
    trainer, net = trainer_of(optim.SGD(optim.RunTime(0.5), momentum=0.9)), TorchNet()
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    trained_there(net, optimizer, batches[:3])
    trainer.from_torch(net, optimizer)
    assert trainer.hyperparameters["lr"] == 0.01
    np.testing.assert_allclose(
        trained_here(trainer, batches[3:]), trained_there(net, optimizer, batches[3:]), rtol=RTOL
    )
    trainer.set_hyperparameter("lr", 0.02)
    trainer.to_torch(net, optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.02


def test_state_dicts(tmp_path):
    trainer, net = trainer_of("sgd"), TorchNet()
    torch.save(state_dict(trainer), tmp_path / "weights.pt")
    net.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    with torch.no_grad():
        net.inner.weight.mul_(2)
    before = trainer.value_of("inner.weight").numpy()
    trainer.load_state_dict(net.state_dict())
    np.testing.assert_array_equal(trainer.value_of("inner.weight").numpy(), 2 * before)


class Tied(pullback.nn.Module):
    def __init__(self):
        self.inner, self.outer = pullback.nn.Linear(6, 6, bias=False), pullback.nn.Linear(6, 6, bias=False)
        self.outer.weight = self.inner.weight

    def forward(self, x):
        return self.outer(self.inner(x))


class TorchTied(nn.Module):
    def __init__(self, is_tied=True):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        if is_tied:
            self.outer.weight = self.inner.weight

    def forward(self, x):
        return self.outer(self.inner(x))


def test_tied_weights():
    x, y = np.random.default_rng(0).normal(size=(8, 6)).astype("float32"), np.arange(8) % 6
    trainer = pullback.trainer(Tied(), "cross_entropy", optim.Adam(1e-2), example=x)
    trainer.update(x, y)
    net = TorchTied()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    trainer.to_torch(net, optimizer)
    assert net.inner.weight is net.outer.weight and len(optimizer.state) == 1
    trained = [(x, y)] * 3
    np.testing.assert_allclose(trained_there(net, optimizer, trained), trained_here(trainer, trained), rtol=RTOL)
    apart = TorchTied(is_tied=False)
    with pytest.raises(ArgumentError, match=r"inner.weight and outer.weight are one tensor here, and two that"):
        trainer.from_torch(apart)
    trainer.to_torch(apart)
    assert torch.equal(apart.inner.weight, apart.outer.weight)


def test_compiled_modules_are_the_module_inside():
    trainer, net = trainer_of("sgd"), TorchNet()
    trainer.to_torch(torch.compile(net, backend="eager"))
    assert torch.equal(net.fc.weight, torch.from_dlpack(trainer.value_of("fc.weight")))


# -- refusals


class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(7, 8), nn.BatchNorm1d(8)
        self.head, self.more = nn.Linear(8, 5), nn.Parameter(torch.zeros(2))


@pytest.mark.parametrize("direction", ["to", "from"])
def test_all_weights_that_do_not_fit_are_listed(direction):
    trainer, net = trainer_of("sgd"), Other()
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ArgumentError) as refused:
        trainer.to_torch(net) if direction == "to" else trainer.from_torch(net)
    message = str(refused.value)
    assert "lacks fc.weight, fc.bias" in message
    assert "the trainer lacks more, head.weight, head.bias" in message
    assert "inner.weight is (8, 6) here, (8, 7) there" in message
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_names_of_one_side_alone_may_be_left_out():
    trainer, net = trainer_of("sgd"), Other()
    net.inner = nn.Linear(6, 8)
    trainer.to_torch(net, strict=False)
    assert torch.equal(net.inner.weight, torch.from_dlpack(trainer.value_of("inner.weight")))
    with torch.no_grad():
        net.inner.weight.add_(1)
    trainer.from_torch(net, strict=False)
    assert torch.equal(net.inner.weight, torch.from_dlpack(trainer.value_of("inner.weight")))


REFUSED = {
    "another kind": (
        lambda: optim.Adam(1e-2),
        lambda p: torch.optim.AdamW(p),
        "optimizer is Adam, that of PyTorch AdamW",
    ),
    "no counterpart": (lambda: optim.Lion(1e-2), lambda p: torch.optim.SGD(p), "Lion have no counterpart"),
    "half of it": (
        lambda: optim.Adam(1e-2),
        lambda p: torch.optim.Adam(list(p)[:2]),
        r"(?s)norm.weight is trained here, and not.*fc.bias is trained here",
    ),
    "foreign": (
        lambda: optim.Adam(1e-2),
        lambda p: torch.optim.Adam([*p, nn.Parameter(torch.zeros(7))]),
        r"a parameter of shape \(7,\) is none of the module",
    ),
    "accumulated": (
        lambda: optim.Accumulate(optim.SGD(0.1), 2),
        lambda p: torch.optim.SGD(p),
        r"Accumulate\(SGD\) have no counterpart",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_optimizers_that_do_not_fit(name):
    ours, theirs, message = REFUSED[name]
    trainer, net = trainer_of(ours()), TorchNet()
    before = net.inner.weight.clone()
    with pytest.raises(ArgumentError, match=message):
        trainer.to_torch(net, theirs(net.parameters()))
    assert torch.equal(net.inner.weight, before)


def test_frozen_here_and_trained_there():
    trainer, net = trainer_of(optim.Adam(1e-2), trainable=["fc.*"]), TorchNet()
    with pytest.raises(ArgumentError, match=r"inner.weight is frozen here, and would be trained there"):
        trainer.to_torch(net, torch.optim.Adam(net.parameters()))
    net.inner.requires_grad_(False)
    net.norm.requires_grad_(False)
    trainer.to_torch(net, torch.optim.Adam(net.parameters()))


def test_other_hyperparameters_are_listed(batches):
    trainer, net = trainer_of(optim.Adam(1e-2)), TorchNet()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3, (0.8, 0.999), amsgrad=True)
    before = trainer.value_of("inner.weight").numpy()
    with pytest.raises(ArgumentError) as refused:
        trainer.from_torch(net, optimizer)
    for line in (
        "lr is 0.01 here, 0.001 there",
        "betas is (0.9, 0.999) here, (0.8, 0.999) there",
        "amsgrad is False here",
    ):
        assert line in str(refused.value)
    np.testing.assert_array_equal(trainer.value_of("inner.weight").numpy(), before)


def test_steps_that_differ_from_parameter_to_parameter(batches):
    trainer, net = trainer_of(optim.Adam(1e-3)), TorchNet()
    optimizer = torch.optim.Adam(net.parameters())
    trained_there(net, optimizer, batches[:2])
    optimizer.state[net.fc.bias]["step"] += 1
    with pytest.raises(ArgumentError, match=r"different numbers of times.*fc.bias 3"):
        trainer.from_torch(net, optimizer)


def test_optimizer_states_by_name(batches):
    trainer, other = (trainer_of(optim.Adam(1e-2)) for _ in range(2))
    trained_here(trainer, batches[:2])
    states = trainer.optimizer_state_dict()
    assert list(states)[:4] == ["num_steps", "beta1_prod", "beta2_prod", "m of inner.weight"]
    other.load_optimizer_state_dict(states)
    assert other.steps == 2
    with pytest.raises(ArgumentError, match=r"no state 'm of inner.wieght'.*m of inner.weight"):
        other.load_optimizer_state_dict({"m of inner.wieght": states["m of inner.weight"]})
    with pytest.raises(ShapeError, match=r"m of fc\.bias has shape"):
        other.load_optimizer_state_dict({"m of fc.bias": np.zeros(4, "float32")})


def test_what_is_no_module():
    with pytest.raises(ArgumentError, match=r"expected a torch.nn.Module, got Adam"):
        net = TorchNet()
        trainer_of("adam").to_torch(torch.optim.Adam(net.parameters()))
