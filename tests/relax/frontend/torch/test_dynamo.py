"""torch.compile with backend="pullback" against PyTorch itself: losses, gradients, buffers, views, and refusals."""

from __future__ import annotations

import copy
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
registry = pytest.importorskip("torch._dynamo.backends.registry")

from benchmarks import models_torch as models  # noqa: E402
from pullback.ir import ArgumentError, UserError  # noqa: E402
from pullback.relax.frontend.converters import UnsupportedOps  # noqa: E402
from pullback.relax.frontend.torch import dynamo, shared  # noqa: E402  registers the backend
from pullback.relax.frontend.torch.compiled import Compiled  # noqa: E402
from tests.relax.frontend.torch.torch_models import MODELS, cnn, images, loss_of, mlp  # noqa: E402

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    dynamo._warned.clear()
    torch.manual_seed(0)


def compiled(function, **options):
    """Compiled by pullback, or an error."""
    return torch.compile(function, backend="pullback", options={"fallback": False, **options})


def close(found, expected):
    """Equal to 1e-9 in float64, else 1e-5, beside the largest element."""
    rtol = 1e-9 if expected.dtype == torch.float64 else 1e-5
    scale = float(expected.detach().abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol * scale)


def gradients(results, *inputs):
    """Of the same loss of what the compiled function and the original one gave."""
    return zip(*(torch.autograd.grad(result, inputs) for result in results), strict=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", list(MODELS))
def test_gradients(name, dtype):
    make, data = MODELS[name]
    net = make().to(dtype)
    other = copy.deepcopy(net)
    x, target = data(dtype)
    loss, expected = loss_of(compiled(net)(x), target), loss_of(other(x), target)
    close(loss, expected)
    loss.backward()
    expected.backward()
    for mine, theirs in zip(net.parameters(), other.parameters(), strict=True):
        close(mine.grad, theirs.grad)
    for mine, theirs in zip(net.buffers(), other.buffers(), strict=True):
        close(mine, theirs)


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, 0.05, momentum=0.9, nesterov=True),
    "adam": lambda params: torch.optim.Adam(params, 1e-2),
}


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("name", list(MODELS))
def test_ten_losses(name, optimizer):
    make, data = MODELS[name]
    net = make()
    other = copy.deepcopy(net)
    x, target = data(torch.float32)
    losses = []
    for model, module in ((compiled(net), net), (other, other)):
        step = OPTIMIZERS[optimizer](module.parameters())
        losses.append([])
        for _ in range(10):
            loss = loss_of(model(x), target)
            step.zero_grad()
            loss.backward()
            step.step()
            losses[-1].append(loss.item())
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-5, atol=2e-6)
    assert losses[0][-1] < losses[0][0]


WHOLE = {
    "resnet18": (lambda: models.ResNet18(5, 4), lambda net: net(x=torch.randn(4, 3, 32, 32, dtype=torch.float64))),
    "gpt2": (lambda: models.gpt2(12, 2, 3, 20, 16), lambda net: net(input_ids=torch.arange(12).reshape(2, 6)).logits),
    "minilm": (
        lambda: models.Sentences(models.bert(12, 2, 3, 20)),
        lambda net: net(torch.arange(12).reshape(2, 6), torch.tensor([[1] * 6, [1] * 4 + [0] * 2])),
    ),
}


@pytest.mark.parametrize("name", list(WHOLE))
def test_whole_models(name):
    if name != "resnet18":
        pytest.importorskip("transformers")
    make, call = WHOLE[name]
    net = make().double().train()
    other = copy.deepcopy(net)
    losses = []
    for model, module in ((torch.compile(net, backend="pullback"), net), (other, other)):
        step = torch.optim.AdamW(module.parameters(), 1e-3)
        losses.append([])
        for k in range(5):
            torch.manual_seed(k)
            loss = call(model).square().mean()
            step.zero_grad()
            loss.backward()
            step.step()
            losses[-1].append(loss.item())
    assert not dynamo._warned
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-9)
    for mine, theirs in zip(net.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)


# -- batch norm, dropout, modes


def test_buffers_are_written_in_place():
    net = cnn()
    other = copy.deepcopy(net)
    model, (x, _) = compiled(net), images()
    places = [b.data_ptr() for b in net.buffers()]
    for _ in range(3):
        model(x)
        other(x)
    assert [b.data_ptr() for b in net.buffers()] == places
    assert net[1].num_batches_tracked.item() == 3
    close(net[1].running_mean, other[1].running_mean)
    close(net[1].running_var, other[1].running_var)


def test_eval_and_no_grad():
    net, (x, _) = cnn(), images()
    model = compiled(net)
    with torch.no_grad():
        before = net[1].running_mean.clone()
        found = model(x)  # in train(): statistics move
        assert not found.requires_grad and not torch.equal(net[1].running_mean, before)
    net.eval()
    before = net[1].running_mean.clone()
    found = model(x)
    close(found, net(x))
    assert found.requires_grad and torch.equal(net[1].running_mean, before)
    with torch.inference_mode():
        close(model(x), net(x))
        other = x * 2
        close(model(other), net(other))


def test_dropout_draws_anew_and_backward_agrees():
    net = nn.Sequential(nn.Dropout(0.5), nn.Flatten())
    model = compiled(net)
    x = torch.ones(16, 32, requires_grad=True)
    torch.manual_seed(3)
    first = model(x)
    first.sum().backward()
    assert set(first.unique().tolist()) == {0.0, 2.0} and 0.4 < (first > 0).float().mean() < 0.6
    assert torch.equal(x.grad, first.detach())  # twice the mask, as the result of ones
    assert not torch.equal(model(x), first)
    torch.manual_seed(3)
    assert torch.equal(model(x), first)
    net.eval()
    assert torch.equal(model(x), x)


# -- inputs


def test_inputs_that_need_gradients_and_lie_otherwise():
    def function(x, w, k, scale):
        return torch.tanh(x @ w)[k] * scale

    x = torch.randn(4, 6, dtype=torch.float64).t().requires_grad_()  # (6, 4), not contiguous
    w = torch.randn(1, 8, dtype=torch.float64).expand(4, 8)
    k = torch.tensor([3, 0, 3])
    found, expected = compiled(function)(x, w, k, 2.5), function(x, w, k, 2.5)
    close(found, expected)
    seed = torch.randn(8, 3, dtype=torch.float64).t()
    for mine, theirs in gradients([(found * seed).sum(), (expected * seed).sum()], x):
        close(mine, theirs)


def test_integers_bools_and_empty_tensors():
    def function(x, k):
        return k + 1, x > 0, x.sum(), x[:0] * 2

    x, k = torch.randn(3, 4), torch.arange(3)
    for found, expected in zip(compiled(function)(x, k), function(x, k), strict=True):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        torch.testing.assert_close(found, expected)


def test_sizes_that_change():
    net = mlp()
    model = compiled(net)
    for rows in (5, 3, 7, 1, 5):
        x = torch.randn(rows, 6)
        found, expected = model(x), net(x)
        close(found, expected)
        for mine, theirs in gradients([found.square().sum(), expected.square().sum()], *net.parameters()):
            close(mine, theirs)


def test_sizes_and_numbers_that_dynamo_takes_for_unknown():
    """Floats are tensors then, whose items the graph reads."""
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=0.3))
    other = copy.deepcopy(net)
    model = torch.compile(net, backend="pullback", dynamic=True, options={"fallback": False})
    for rows in (5, 3):
        x = torch.randn(rows, 6)
        close(model(x), other(x))
    close(net[1].running_var, other[1].running_var)


def test_memory_is_shared():
    """What kernels read and write is the memory of PyTorch's tensors."""
    seen = []

    def spy(graph, _):
        def run(*tensors):
            made = Compiled(graph, tensors)
            given = [shared.as_pullback(t) for t in tensors]
            found = made.forward.bind(given)()
            seen.append(([t.data_ptr() for t in tensors], [t.data_ptr for t in given]))
            seen.append(([shared.as_torch(t).data_ptr() for t in found], [t.data_ptr for t in found]))
            return made(*tensors)

        return run

    torch.compile(mlp(), backend=spy)(torch.randn(5, 6))
    for theirs, ours in seen:
        assert theirs == ours and len(ours) > 1


# -- several graphs, and what graphs return


def test_graph_breaks():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

        def forward(self, x):
            x = torch.relu(self.first(x))
            torch._dynamo.graph_break()
            return self.second(x)

    net = Broken()
    x = torch.randn(3, 6, requires_grad=True)
    torch._dynamo.utils.counters.clear()
    found, expected = compiled(net)(x), net(x)
    close(found, expected)
    for mine, theirs in gradients([found.sum(), expected.sum()], x, *net.parameters()):
        close(mine, theirs)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


def test_views_stay_views():
    def function(x, w):
        y = x * w
        return x.view(-1), x, y, y[1:], w.detach(), y.detach().flatten(), x.t()

    x, w = torch.randn(3, 4), torch.randn(4, requires_grad=True)
    found, expected = compiled(function)(x, w), function(x, w)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
        assert mine.requires_grad == theirs.requires_grad and mine.stride() == theirs.stride()
    assert found[0].data_ptr() == x.data_ptr() == found[1].data_ptr() == found[6].data_ptr()
    assert found[4].data_ptr() == w.data_ptr()
    assert found[3].data_ptr() == found[2][1:].data_ptr() and found[5].data_ptr() == found[2].data_ptr()
    for mine, theirs in gradients([(r[2] ** 2).sum() + r[3].sum() for r in (found, expected)], w):
        close(mine, theirs)


def test_inputs_that_are_written_to():
    def function(x, total):
        x.mul_(2)
        with torch.no_grad():
            total.mul_(0.5).add_(x.sum(0))
        return x.sin(), total

    leaf = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    found = []
    for run in (compiled(function), function):
        total = torch.ones(4, dtype=torch.float64)
        x = leaf * 3
        result, same = run(x, total)
        assert same.data_ptr() == total.data_ptr() and not total.requires_grad
        found.append((result, x, total, *torch.autograd.grad(result.sum() + (x**2).sum(), leaf)))
    for mine, theirs in zip(*found, strict=True):
        close(mine, theirs)


def test_what_is_computed_without_gradients():
    def function(x, w):
        with torch.no_grad():
            scale = (w * w).sum()
        y = x * w / scale
        return y, y.detach() * w

    x, w = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64, requires_grad=True)
    results = compiled(function)(x, w), function(x, w)
    for mine, theirs in gradients([a.sum() + b.square().sum() for a, b in results], w):
        close(mine, theirs)


def test_results_without_gradients():
    def function(x, w):
        y = x @ w
        return y.exp(), y.argmax(-1), torch.floor(y), y.sin()

    x, w = torch.randn(3, 4), torch.randn(4, 5, requires_grad=True)
    found, expected = compiled(function)(x, w), function(x, w)
    assert [r.requires_grad for r in found] == [r.requires_grad for r in expected]
    for mine, theirs in gradients([r[3].sum() for r in (found, expected)], w):  # of the others there is none
        close(mine, theirs)


def test_parameters_without_a_part_in_the_loss_get_no_gradient():
    """None, not zeros: an optimizer with weight decay would shrink them."""

    def function(x, used, other, unused, whole):
        return x * used, x * other, x * torch.floor(whole)

    parameters = [nn.Parameter(torch.randn(4)) for _ in range(4)]
    x = torch.randn(3, 4)
    found, expected = compiled(function)(x, *parameters), function(x, *parameters)
    mine, theirs = (
        torch.autograd.grad(r[0].sum() + r[2].sum(), parameters, allow_unused=True) for r in (found, expected)
    )
    assert [g is None for g in mine] == [g is None for g in theirs] == [False, True, True, False]
    assert torch.equal(mine[3], torch.zeros(4))
    close(mine[0], theirs[0])


def test_gradients_add_up_and_graphs_are_kept():
    net, x = mlp(), torch.randn(3, 6)
    loss = compiled(net)(x).square().sum()
    loss.backward(retain_graph=True)
    once = [p.grad.clone() for p in net.parameters()]
    loss.backward()
    for gradient, parameter in zip(once, net.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_a_parameter_that_was_changed_meanwhile():
    net = mlp()
    loss = compiled(net)(torch.randn(3, 6)).sum()
    with torch.no_grad():
        net[2].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_frozen_parameters_get_no_gradient():
    net = mlp()
    net[0].requires_grad_(False)
    compiled(net)(torch.randn(3, 6)).sum().backward()
    assert net[0].weight.grad is None and net[2].weight.grad is not None


def test_autocast():
    net, x = mlp(), torch.randn(5, 6)
    model = compiled(net)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = model(x), net(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)
    close(model(x), net(x))  # and outside of it as before


def test_checkpointed_parts_are_parts_of_the_graph():
    inner, x = nn.Linear(4, 4).double(), torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def function(x):
        return torch.utils.checkpoint.checkpoint(lambda z: inner(z).tanh(), x.sin(), use_reentrant=False)

    results = [run(x).square().sum() for run in (compiled(function), function)]
    close(*results)
    for mine, theirs in gradients(results, x, *inner.parameters()):
        close(mine, theirs)


# -- refusals


class Doubling(torch.autograd.Function):
    """Whose gradient is none of what it computes."""

    @staticmethod
    def forward(ctx, x):
        return x.sin()

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


def test_functions_with_a_gradient_of_their_own_run_in_pytorch():
    x = torch.randn(3, requires_grad=True)
    with pytest.warns(dynamo.NotCompiled, match="torch.autograd.Function in the model"):
        found = torch.compile(lambda x: Doubling.apply(x * 3), backend="pullback")(x)
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert gradient.tolist() == [6, 6, 6]


@pytest.fixture(scope="module")
def odd():
    @torch.library.custom_op("pullback_test::odd", mutates_args=())
    def odd(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    odd.register_fake(lambda x: torch.empty_like(x))
    odd.register_autograd(
        lambda ctx, g: g * ctx.x.cos(), setup_context=lambda ctx, inputs, output: setattr(ctx, "x", inputs[0])
    )
    return torch.ops.pullback_test.odd


def test_unknown_operators_run_in_pytorch(odd):
    def function(x):
        return odd(x * 2) + 1

    x = torch.randn(3, requires_grad=True)
    model = torch.compile(function, backend="pullback")
    with pytest.warns(dynamo.NotCompiled, match=r"runs in PyTorch: 1 operator.*\n.*pullback_test.odd") as told:
        model(x)
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model(x)
    close(found, function(x))
    for mine, theirs in gradients([found.sum(), function(x).sum()], x):
        close(mine, theirs)


def test_unknown_operators_are_an_error_on_request(odd):
    with pytest.raises(UnsupportedOps, match=r"pullback_test.odd.*test_dynamo.py") as refused:
        compiled(lambda x: odd(x * 2))(torch.randn(3))
    assert refused.value.names == ("pullback_test.odd.default",)


def test_what_autograd_is_not_told_of_runs_in_pytorch():
    def function(x, w):
        y = x * w
        with torch.no_grad():
            y.mul_(2)
        return y * y

    x, w = torch.randn(3), torch.randn(3, requires_grad=True)
    with pytest.raises(UserError, match="under no_grad"):
        compiled(function)(x, w)
    torch._dynamo.reset()
    with pytest.warns(dynamo.NotCompiled, match="under no_grad"):
        found = torch.compile(function, backend="pullback")(x, w)
    for mine, theirs in gradients([found.sum(), function(x, w).sum()], w):
        close(mine, theirs)


def test_second_derivatives_are_refused():
    net = mlp()
    x = torch.randn(3, 6, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(net)(x).sum(), x, create_graph=True)
    close(gradient, torch.autograd.grad(net(x).sum(), x)[0])
    with pytest.raises(UserError, match="differentiated twice") as refused:
        gradient.square().sum().backward()
    assert "create_graph" in refused.value.hint


def test_values_that_a_kernel_refuses():
    net = nn.Embedding(5, 3)
    model = compiled(net)
    model(torch.tensor([0, 4]))
    with pytest.raises(ArgumentError, match=r"index|row|range"):
        model(torch.tensor([0, 5]))
    close(model(torch.tensor([1, 2])), net(torch.tensor([1, 2])))


def test_options():
    x = torch.randn(3)
    assert torch.equal(compiled(lambda x: x + 1, target="debug")(x), x + 1)
    with pytest.raises(Exception, match=r'"pullback" has no option .fallbak'):
        torch.compile(lambda x: x + 1, backend="pullback", options={"fallbak": False})(x)


def test_the_name_is_known_once():
    assert "pullback" in torch._dynamo.list_backends()
    dynamo.register()
    assert torch._dynamo.lookup_backend("pullback") is dynamo.backend


def test_the_entry_point_leads_to_the_backend(monkeypatch):
    """As torch.compile finds it where the package is installed, and nobody imported it yet."""
    project = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    group = "torch_dynamo_backends"
    entry = EntryPoint("pullback", project["entry-points"][group]["pullback"], group)
    monkeypatch.setattr(registry, "_BACKENDS", {"pullback": entry})
    monkeypatch.setattr(registry, "_COMPILER_FNS", {})
    assert torch._dynamo.lookup_backend("pullback") is dynamo.backend
    dynamo.register()
    assert torch._dynamo.lookup_backend("pullback") is dynamo.backend
