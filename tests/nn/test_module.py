"""Modules: attributes, names, containers, copies, text, and what is refused."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, CallError, NameNotFound, NoAttribute, ShapeError, UserError


class Block(nn.Module):
    def __init__(self, width):
        self.inner = nn.Linear(width, width)
        self.scale = nn.Parameter(np.ones(width, "float32"))
        self.calls = nn.Buffer(np.zeros((), "int64"))

    def forward(self, x):
        self.calls = self.calls + 1
        return x + self.scale * self.inner(x).tanh()


class Net(nn.Module):
    def __init__(self):
        self.blocks = nn.ModuleList([Block(4) for _ in range(2)])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3, bias=False)})

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.heads["a"](x), self.heads["b"](x)


NAMES = [
    "blocks.0.scale", "blocks.0.inner.weight", "blocks.0.inner.bias",
    "blocks.1.scale", "blocks.1.inner.weight", "blocks.1.inner.bias",
    "heads.a.weight", "heads.a.bias", "heads.b.weight",
]  # fmt: skip


def test_names_follow_the_tree():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert [name for name, _ in net.named_buffers()] == ["blocks.0.calls", "blocks.1.calls"]
    assert [name for name, _ in net.named_modules()] == [
        "", "blocks", "blocks.0", "blocks.0.inner", "blocks.1", "blocks.1.inner", "heads", "heads.a", "heads.b",
    ]  # fmt: skip
    assert net.get_submodule("blocks.1.inner") is net.blocks[1].inner
    assert net.get_parameter("heads.a.bias") is net.heads["a"].bias
    assert len(list(net.parameters())) == len(NAMES) == len(list(net.state_dict())) - 2


def test_unknown_names_list_those_there_are():
    net = Net()
    with pytest.raises(NameNotFound, match=r"no module 'heads.c'(.|\n)*hint: it has a, b"):
        net.get_submodule("heads.c")
    with pytest.raises(NameNotFound, match=r"no parameter 'heads.a.wieght'.*did you mean heads.a.weight"):
        net.get_parameter("heads.a.wieght")
    with pytest.raises(NoAttribute, match="Net has no attribute 'block'"):
        net.block  # noqa: B018
    with pytest.raises(NoAttribute, match=r"cuda(.|\n)*CPU"):
        net.cuda()


def test_attributes_move_between_kinds():
    module = nn.Module()
    module.thing = nn.Parameter((2,))
    module.thing = nn.Linear(2, 2)
    assert [n for n, _ in module.named_parameters()] == ["thing.weight", "thing.bias"]
    module.thing = 5
    assert not list(module.parameters())
    assert module.thing == 5
    module.bias = nn.Parameter((2,))
    module.bias = None
    assert module.bias is None
    assert not list(module.parameters())
    del module.thing
    assert not hasattr(module, "thing")


def test_registering():
    module = nn.Module()
    module.register_parameter("w", nn.Parameter((2, 3)))
    module.register_buffer("b", np.arange(3))
    module.register_module("m", nn.Linear(1, 1))
    assert set(module.state_dict()) == {"w", "b", "m.weight", "m.bias"}
    for wrong in ("", "a.b", 5):
        with pytest.raises(ArgumentError, match="without dots"):
            module.register_parameter(wrong, nn.Parameter((2,)))
    with pytest.raises(ArgumentError, match="w must be a Parameter or None, got ndarray"):
        module.register_parameter("w", np.zeros(2))


def test_containers():
    seq = nn.Sequential(nn.Linear(2, 3), nn.Identity(), nn.Linear(3, 1))
    assert len(seq) == 3
    assert seq[-1].out_features == 1
    assert [type(m).__name__ for m in seq[:2]] == ["Linear", "Identity"]
    assert [n for n, _ in nn.Sequential({"a": nn.Linear(1, 1)}).named_parameters()] == ["a.weight", "a.bias"]
    modules = nn.ModuleList([nn.Linear(1, 1)])
    modules.insert(0, nn.Identity())
    modules.extend([nn.Identity()])
    modules[0] = nn.Linear(1, 2)
    assert [type(m).__name__ for m in modules] == ["Linear", "Linear", "Identity"]
    heads = nn.ModuleDict({"x": nn.Identity()})
    heads["y"] = nn.Linear(1, 1)
    assert list(heads) == ["x", "y"]
    assert "y" in heads
    assert [k for k, _ in heads.items()] == ["x", "y"]
    params = nn.ParameterList([nn.Parameter((1,)), nn.Parameter((2,))])
    assert [p.shape for p in params] == [(1,), (2,)]
    named = nn.ParameterDict({"u": nn.Parameter((1,))})
    named["v"] = nn.Parameter((3,))
    assert [k for k, _ in named.items()] == ["u", "v"]


def test_the_same_layer_twice_in_a_container_is_refused():
    layer = nn.Linear(2, 2)
    for make in (lambda: nn.Sequential(*[layer] * 3), lambda: nn.ModuleList([layer, layer])):
        with pytest.raises(ArgumentError, match=r"given the same Linear twice(.|\n)*for _ in range"):
            make()
    quiet = nn.Identity()
    assert len(nn.Sequential(quiet, quiet)) == 2


@pytest.mark.parametrize("wrong", [nn.Linear, len, 3])
def test_containers_hold_modules(wrong):
    with pytest.raises(ArgumentError, match="Sequential holds modules"):
        nn.Sequential(wrong)


def test_what_a_container_is_given_in_their_place():
    for given, hint in ((nn.ReLU, r"make one of it: ReLU\(\)"), ([nn.ReLU()], r"nn\.Sequential\(\*layers\)")):
        with pytest.raises(ArgumentError, match=hint):
            nn.Sequential(given)


def test_parameters_take_values_or_shapes():
    assert nn.Parameter((2, 3)).shape == (2, 3)
    assert not nn.Parameter((2, 3)).numpy().any()
    ones = np.ones((2, 2))
    param = nn.Parameter(ones)
    ones[:] = 5
    assert param.dtype == "float64"
    assert (param.numpy() == 1).all()
    assert nn.Parameter([1.0, 2.0]).dtype == "float32"
    assert nn.Parameter((3,), init=2.5).numpy().tolist() == [2.5] * 3
    param.data = np.zeros((2, 2))
    assert not param.numpy().any()
    with pytest.raises(ShapeError, match=r"\(2, 2\) cannot take a value of shape \(3,\)"):
        param.data = np.zeros(3)
    with pytest.raises(ArgumentError, match="takes no init"):
        nn.Parameter(np.ones(2), init="zeros")
    with pytest.raises(ArgumentError, match="'kaming' is no initializer"):
        nn.Parameter((2, 2), init="kaming")


def test_to_changes_floats_alone():
    net = Block(2).to("float64")
    assert net.inner.weight.dtype == net.scale.dtype == "float64"
    assert net.calls.dtype == "int64"
    with pytest.raises(ArgumentError, match="name of a dtype"):
        net.to("cuda")


def test_copies_have_values_of_their_own():
    net = Net()
    before = {n: t.numpy() for n, t in net.state_dict().items()}
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert all((t.numpy() == before[n]).all() for n, t in other.state_dict().items())
        other.blocks[0].scale.data = np.zeros(4)
        assert net.blocks[0].scale.numpy().all()


def test_text_shows_the_tree():
    assert repr(nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Identity()))) == (
        "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n  (1): Sequential(\n"
        "    (0): Identity()\n  )\n)"
    )


def test_calls_with_arrays_compute_in_the_form_for_inference():
    net = Block(3)
    x = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    w, b = net.inner.weight.numpy(), net.inner.bias.numpy()
    np.testing.assert_allclose(net(x).numpy(), x + np.tanh(x @ w.T + b), rtol=1e-5, atol=1e-6)
    net.scale.data = np.zeros(3)
    np.testing.assert_array_equal(net(x).numpy(), x)  # nothing of an earlier call is kept
    assert net.calls.numpy() == 0


def test_train_and_eval_change_nothing():
    net = Net()
    assert net.train() is net.eval() is net.train(False) is net
    with pytest.raises(UserError, match="does not know whether it trains"):
        net.training  # noqa: B018


def test_apply_and_requires_grad():
    net, seen = Net(), []
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen[-1] == "Net"
    assert seen.count("Linear") == 4
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())


def test_constructors_explain_their_arguments():
    with pytest.raises(CallError, match="argument 'units' does not exist"):
        nn.Linear(3, units=4)
    with pytest.raises(ArgumentError, match=r"a size must be an int ≥ 0, got 2\.5"):
        nn.Linear(3, 2.5)


# ---- state dicts ----------------------------------------------------------------------------------------------------


def test_state_dicts_go_both_ways():
    one, other = Net(), Net()
    one.init_parameters(1)
    other.init_parameters(2)
    assert other.load_state_dict(one.state_dict()) == ([], [])
    assert all((t.numpy() == one.state_dict()[n].numpy()).all() for n, t in other.state_dict().items())


def test_state_dicts_that_do_not_fit_change_nothing():
    net = Net()
    before = net.state_dict()
    good = {n: t.numpy() + 1 for n, t in before.items()}
    renamed = {("heads.c.weight" if n == "heads.b.weight" else n): v for n, v in good.items()}
    with pytest.raises(ArgumentError, match=r"missing heads.b.weight; unexpected heads.c.weight(.|\n)*strict=False"):
        net.load_state_dict(renamed)
    with pytest.raises(ShapeError, match=r"heads.b.weight has shape \(3, 4\), the given value \(4, 3\)"):
        net.load_state_dict(good | {"heads.b.weight": np.zeros((4, 3))})
    with pytest.raises(ArgumentError, match="takes a dict"):
        net.load_state_dict([1, 2])
    assert all((t.numpy() == before[n].numpy()).all() for n, t in net.state_dict().items())
    assert net.load_state_dict(renamed, strict=False) == (["heads.b.weight"], ["heads.c.weight"])
    assert (net.heads["a"].bias.numpy() == before["heads.a.bias"].numpy() + 1).all()


# ---- initial values -------------------------------------------------------------------------------------------------


def test_seeds_decide():
    def weights(seed):
        return Net().init_parameters(seed).state_dict()["blocks.0.inner.weight"].numpy()

    assert (weights(3) == weights(3)).all()
    assert (weights(3) != weights(4)).any()
    with pytest.raises(ArgumentError, match="a seed must be"):
        Net().init_parameters(-1)


def test_patterns_choose_initializers():
    net = Net().init_parameters(0, {"heads.*": 3.0, "*.weight": nn.init.Normal(0.02)})
    assert (net.heads["a"].weight.numpy() == 3).all()
    assert 0.005 < net.blocks[0].inner.weight.numpy().std() < 0.04
    assert (net.blocks[0].scale.numpy() == 1).all()
    plain = Net().init_parameters(0)
    assert (net.blocks[1].inner.bias.numpy() == plain.blocks[1].inner.bias.numpy()).all()
    with pytest.raises(ArgumentError, match=r"no parameter matches 'body.\*'; the parameters are: blocks.0.scale"):
        net.init_parameters(0, {"body.*": "zeros"})


@pytest.mark.parametrize("kind", ["Sequential", "ModuleList"])
def test_containers_are_changed_as_lists_are(kind):
    """Another head for a body, as fine-tuning wants it; members are numbered anew."""
    first, second, third = (nn.Linear(2, 2) for _ in range(3))
    made = nn.Sequential(first, nn.ReLU()) if kind == "Sequential" else nn.ModuleList([first, nn.ReLU()])
    made[-1] = second
    made[1] = second  # as it is
    assert [*made] == [first, second]
    assert made.insert(1, third) is made
    assert [name for name, _ in made.named_children()] == ["0", "1", "2"]
    assert [*made] == [first, third, second]
    with pytest.raises(ArgumentError, match="twice"):
        made[0] = second
    with pytest.raises(ArgumentError, match="holds modules"):
        made[0] = abs
    assert made.pop() is second
    del made[0]
    assert [*made.extend([first, second])] == [third, first, second]
    del made[1:]
    assert [name for name, _ in made.named_parameters()] == ["0.weight", "0.bias"]
    with pytest.raises(IndexError):
        made[3] = first


def test_a_replaced_head_is_trained_with_the_body_as_it_was():
    x, y = np.ones((4, 3), "float32"), np.arange(4) % 2
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    pullback.trainer(model, "cross_entropy", "adam", example=x, target="debug").update(x, y)
    body = model[0].weight.numpy()
    model[-1] = nn.Linear(4, 5)
    again = pullback.trainer(model, "cross_entropy", "adam", example=x, target="debug")
    assert (again.params["0.weight"].numpy() == body).all()
    assert again.predict(x).shape == model(x).shape == (4, 5)


def test_named_members_go_out():
    heads = nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Linear(1, 2)})
    assert heads.pop("a").out_features == 1
    del heads["b"]
    assert not heads
    with pytest.raises(NameNotFound, match="there is no module 'b'"):
        del heads["b"]


def test_parameters_that_are_looked_at_first_begin_differently():
    """They are drawn one by one then, and no two neurons of two layers may be the same."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    first, second = (layer.weight.numpy() for layer in model)
    assert (first != second).all()
    assert (first == model.state_dict()["0.weight"].numpy()).all()
