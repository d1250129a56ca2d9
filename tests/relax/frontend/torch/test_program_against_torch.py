"""Modules and programs of PyTorch as models: inputs, outputs, values, forms, sizes, and what is refused."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pullback
from pullback import optim
from pullback.ir.errors import ArgumentError, DTypeError, ShapeError, UserError
from pullback.relax import op
from pullback.relax.frontend import UnsupportedOps, register_converter
from pullback.relax.frontend.torch import (
    ATEN,
    from_exported_program,
    from_fx,
    from_pytorch,
    from_torch,
)

F = nn.functional


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        return self.fc(self.drop(F.relu_(self.bn(self.conv(x))).mean((2, 3))))


class Nested(nn.Module):
    """Takes and returns dicts, tuples and what is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.tied = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
        self.tied.weight = self.embed.weight
        self.fc = nn.Linear(4, 4)
        self.fc.bias.requires_grad_(False)
        self.register_buffer("offset", torch.ones(4), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, batch, scale=1.0, *, extra=None):
        self.calls += 1
        hidden = self.fc(self.embed(batch["ids"]).mean(1) + self.offset) * scale
        if extra is not None:
            hidden = hidden + extra[0]
        with torch.no_grad():
            doubled = hidden * 2
        return {"logits": self.tied(hidden), "nothing": None, "hidden": (hidden, doubled)}


def seeded(make: Any) -> Any:
    torch.manual_seed(0)
    return make()


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype("float32")


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), wanted.detach().numpy(), rtol=1e-5, atol=1e-5)


# -- inputs, outputs, values


def test_inputs_and_outputs_are_flat_and_have_names() -> None:
    net = seeded(Nested)
    ids, extra = torch.tensor([[1, 2], [3, 4]]), torch.randn(2, 4)
    model = from_torch(net, {"batch": {"ids": ids}, "extra": [extra], "scale": 2.0})
    assert model.input_names == ["batch_ids", "extra_0"]
    assert model.output_names == ["logits", "hidden.0", "hidden.1"]
    assert str(model.example[0]) == 'R.Tensor((n, t), "int64")'
    wanted = net({"ids": ids}, 2.0, extra=[extra])
    found = model(ids.numpy(), extra.numpy())
    for mine, theirs in zip(found, (wanted["logits"], *wanted["hidden"]), strict=True):
        close(mine, theirs)


def test_values_have_their_names_ties_and_freezes() -> None:
    net = seeded(Nested)
    model = from_torch(net, {"batch": {"ids": torch.zeros(2, 3, dtype=torch.int64)}}, outputs="logits")
    assert dict(model.state_dict()).keys() == net.state_dict().keys()
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["fc.bias"]
    module = model.export(*model.example)
    assert module.attrs["aliases"] == {"tied.weight": "embed.weight"}
    assert [p.name for p in module["backbone"].params][1:] == ["embed.weight", "fc.weight", "fc.bias", "calls"]

    trainer = pullback.trainer(model, "cross_entropy", optim.SGD(lr=0.1))
    ids, y = np.array([[1, 2, 3], [4, 5, 6]]), np.array([7, 8])
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(net({"ids": torch.from_numpy(ids)})["logits"], torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(float(trainer.update(ids, y)), loss.item(), rtol=1e-5)
    for name, value in net.state_dict().items():
        close(model.state_dict()[name], value)
    assert model.state_dict()["calls"].dtype == "int64" and int(model.state_dict()["calls"].item()) == 3


def test_a_constant_of_forward_is_part_of_the_program() -> None:
    class Shifted(nn.Module):
        def forward(self, x):
            return x + torch.tensor([1.0, 2.0, 3.0])

    model = from_torch(Shifted(), torch.zeros(2, 3))
    np.testing.assert_array_equal(np.asarray(model(np.zeros((2, 3), "float32"))), [[1, 2, 3]] * 2)
    assert not model.held


def test_outputs_are_chosen_by_name() -> None:
    example = {"batch": {"ids": torch.zeros(2, 3, dtype=torch.int64)}}
    model = from_torch(Nested(), example, outputs=["hidden.1", "logits"])
    assert model.output_names == ["hidden.1", "logits"]
    with pytest.raises(ArgumentError, match="no output 'logit': did you mean logits"):
        from_torch(Nested(), example, outputs="logit")


# -- forms


@pytest.mark.parametrize("training", [True, False])
def test_one_import_trains_and_predicts_whatever_mode_the_module_is_in(training: bool) -> None:
    net, x = seeded(Small).train(training), numbers(4, 3, 6, 6)
    model = from_torch(net, torch.from_numpy(x))
    assert net.training is training and all(part.training is training for part in net.modules())
    trainer = pullback.trainer(model, "cross_entropy", optim.SGD(lr=0.0))
    net.eval()
    close(trainer.predict(x), net(torch.from_numpy(x)))
    first, second = (float(trainer.update(x, np.zeros(4, "int64"))) for _ in range(2))
    assert first != second  # other elements are dropped
    assert int(trainer.state_dict()["bn.num_batches_tracked"].item()) == 2
    net.train()
    for _ in range(2):
        net(torch.from_numpy(x))
    close(trainer.state_dict()["bn.running_var"], net.bn.running_var)


def test_parts_in_eval_keep_their_form_for_inference() -> None:
    net, x = seeded(Small), numbers(4, 3, 6, 6)
    net.bn.eval()
    net.drop.eval()
    trainer = pullback.trainer(from_torch(net, torch.from_numpy(x)), "cross_entropy", optim.SGD(lr=0.1))
    optimizer, y = torch.optim.SGD(net.parameters(), 0.1), torch.arange(4)
    for _ in range(2):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(torch.from_numpy(x)), y)
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(float(trainer.update(x, y.numpy())), loss.item(), rtol=1e-5)
    assert int(trainer.state_dict()["bn.num_batches_tracked"].item()) == 0


def test_a_part_of_the_model_is_frozen_by_its_name() -> None:
    net, x = seeded(Small), numbers(4, 3, 6, 6)
    model = from_torch(net, torch.from_numpy(x))
    for name in ("conv", "bn", "drop"):
        model.get_submodule(name).freeze()
    trainer = pullback.trainer(model, "cross_entropy", optim.SGD(lr=0.1))
    before = trainer.predict(x).numpy()
    first = float(trainer.update(x, np.arange(4)))
    np.testing.assert_allclose(first, F.cross_entropy(torch.from_numpy(before), torch.arange(4)).item(), rtol=1e-5)
    assert (np.asarray(trainer.state_dict()["bn.running_mean"]) == 0).all()
    assert trainer.trained == ("fc.weight", "fc.bias")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda trainer: pickle.loads(pickle.dumps(trainer))])
def test_a_trainer_is_copied_and_pickled_with_its_model(copied: Any) -> None:
    net, x = seeded(lambda: nn.Sequential(nn.LSTM(3, 4, batch_first=True))), numbers(2, 5, 3)
    model = from_torch(net, torch.from_numpy(x), outputs="output.0")
    trainer = pullback.trainer(model, "mse", optim.SGD(lr=0.1))
    other = copied(trainer)
    trainer.update(x, np.zeros((2, 5, 4), "float32"))
    close(other.predict(x), net(torch.from_numpy(x))[0])
    other.update(x, np.zeros((2, 5, 4), "float32"))
    np.testing.assert_array_equal(np.asarray(other.predict(x)), np.asarray(trainer.predict(x)))
    assert other.model.state_dict().keys() == model.state_dict().keys()


# -- sizes


def test_an_example_of_one_row_leaves_the_batch_free() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = from_torch(Small(), torch.zeros(1, 3, 6, 6))
    assert str(model.example[0]) == 'R.Tensor((n, 3, 6, 6), "float32")'


def test_first_axes_of_one_size_are_one_batch() -> None:
    class Scores(nn.Module):
        def forward(self, a, b):
            return a @ b.T

    model = from_torch(Scores(), (torch.zeros(3, 4), torch.zeros(3, 4)))
    assert model.example[0].shape[0] is model.example[1].shape[0]
    other = from_torch(Scores(), (torch.zeros(3, 4), torch.zeros(5, 4)))
    assert [t.shape[0].name for t in other.example] == ["n", "n1"]


class Sized(nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] == 4 else x + 1


def test_a_batch_that_the_model_fixes_is_reported() -> None:
    with pytest.warns(UserWarning, match=r"a batch of 4 alone.*axis 0 of x"):
        model = from_torch(Sized(), torch.zeros(4, 3))
    assert model.example[0].shape == (4, 3)


def test_a_batch_of_one_row_that_the_model_fixes_is_one_row() -> None:
    with pytest.warns(UserWarning, match="all sizes are those of the example"):
        fixed = from_torch(nn.Sequential(nn.Flatten(0), nn.Linear(6, 2)), torch.zeros(1, 6))
    assert fixed.example[0].shape == (1, 6)


def test_sizes_as_they_are_asked_for() -> None:
    auto = torch.export.Dim.AUTO
    conv, x = seeded(lambda: nn.Conv2d(3, 4, 3, stride=2)), numbers(2, 3, 9, 8)
    model = from_torch(conv, torch.zeros(2, 3, 7, 7), dynamic_shapes={"input": {0: auto, 2: auto, 3: auto}})
    assert str(model.example[0]) == 'R.Tensor((n, 3, t, t1), "float32")'
    close(model(x), conv(torch.from_numpy(x)))
    assert from_torch(conv, torch.zeros(2, 3, 7, 7), dynamic_shapes=()).example[0].shape == (2, 3, 7, 7)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_take_sequences_of_any_length(kind: Any) -> None:
    auto, net = torch.export.Dim.AUTO, seeded(lambda: kind(3, 4, 2, batch_first=True, bidirectional=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = from_torch(net, torch.zeros(2, 5, 3), dynamic_shapes=({0: auto, 1: auto},))
    assert str(model.example[0]) == 'R.Tensor((n, t, 3), "float32")'
    x = numbers(3, 7, 3)
    close(model(x)[0], net(torch.from_numpy(x))[0])
    assert "lstm" not in vars(torch._VF)


def test_arithmetic_of_sizes() -> None:
    class Folded(nn.Module):
        def forward(self, x):
            rows, length, width = x.shape
            half = length // 2
            y = x[:, : 2 * half].reshape(rows * half, 2 * width)
            return y.view(rows, half, -1).mean(1) * max(rows, 1) + torch.arange(length).sum() + x.numel()

    auto = torch.export.Dim.AUTO
    model = from_torch(Folded(), torch.zeros(2, 6, 3), dynamic_shapes={"x": {0: auto, 1: auto}})
    for shape in ((2, 6, 3), (4, 9, 3), (3, 2, 3)):
        x = numbers(*shape)
        close(model(x), Folded()(torch.from_numpy(x)))


# -- the reference's forms


def test_exported_programs() -> None:
    net, x = seeded(Small).eval(), numbers(2, 3, 6, 6)
    program = torch.export.export(net, (torch.from_numpy(x),))
    wanted = net(torch.from_numpy(x))
    (found,) = pullback.compile(from_exported_program(program)).function("main")(x)
    close(found, wanted)
    close(pullback.compile(from_exported_program(program, unwrap_unit_return_tuple=True)).function("main")(x), wanted)
    module = from_exported_program(program, keep_params_as_input=True)
    assert (module.attrs["param_num"], module.attrs["state_num"]) == (6, 3)
    close(from_torch(program)(x), wanted)
    with pytest.raises(ArgumentError, match="takes an ExportedProgram, got Small"):
        from_exported_program(net)
    with pytest.raises(ArgumentError, match="has its example"):
        from_torch(program, torch.from_numpy(x))


def test_an_exported_program_in_training_form_predicts() -> None:
    net, x = seeded(Small), numbers(2, 3, 6, 6)
    module = from_exported_program(torch.export.export(net, (torch.from_numpy(x),)), unwrap_unit_return_tuple=True)
    close(pullback.compile(module).function("main")(x), net.eval()(torch.from_numpy(x)))


def test_fx_graphs() -> None:
    net, x = seeded(Small).eval(), numbers(2, 3, 6, 6)
    graph = torch.fx.symbolic_trace(net)
    module = from_fx(graph, [((2, 3, 6, 6), "float32")], unwrap_unit_return_tuple=True)
    close(pullback.compile(module).function("main")(x), net(torch.from_numpy(x)))
    own = {"aten.relu": lambda x: op.nn.relu(x) * 0.0}
    module = from_fx(graph, [((2, 3, 6, 6), "float32")], unwrap_unit_return_tuple=True, custom_convert_map=own)
    close(pullback.compile(module).function("main")(x), net.fc.bias.expand(2, 5))
    with pytest.raises(ArgumentError, match="dtype 'float33'"):
        from_fx(graph, [((2, 3, 6, 6), "float33")])


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.torch.jit:UserWarning")
@pytest.mark.parametrize("make", ["trace", "script"])
def test_traced_and_scripted_modules(make: str) -> None:
    net, x = seeded(Small).eval(), numbers(2, 3, 6, 6)
    scripted = torch.jit.trace(net, torch.from_numpy(x)) if make == "trace" else torch.jit.script(net)
    module, params = from_pytorch(scripted, [("input0", (2, 3, 6, 6))])
    names = [p.name for p in module["main"].params]
    assert names == ["input0", *params]
    assert {"conv.weight", "bn.running_var", "fc.bias"} <= set(params)
    close(pullback.compile(module).function("main")(x, *params.values()), net(torch.from_numpy(x)))
    bound = pullback.transform.BindParams("main", params)(module)
    close(pullback.compile(bound).function("main")(x), net(torch.from_numpy(x)))
    with pytest.raises(ArgumentError, match="takes a traced or scripted module"):
        from_pytorch(net, [("input0", (2, 3, 6, 6))])


# -- converters of one's own


def test_a_converter_of_ones_own() -> None:
    @torch.library.custom_op("tests_pullback::cube", mutates_args=())
    def cube(x: torch.Tensor, scale: float) -> torch.Tensor:
        return x**3 * scale

    cube.register_fake(lambda x, scale: torch.empty_like(x))

    class Cube(nn.Module):
        def forward(self, x):
            return cube(x, 2.0)

    with pytest.raises(UnsupportedOps, match=r"tests_pullback\.cube\.default"):
        from_torch(Cube(), torch.zeros(2, 3))

    @register_converter("torch", "tests_pullback.cube")
    def convert(x, scale):
        return x * x * x * scale

    try:
        x = numbers(2, 3)
        close(from_torch(Cube(), torch.zeros(2, 3))(x), cube(torch.from_numpy(x), 2.0))
    finally:
        del ATEN._table["tests_pullback.cube"]


# -- what is refused


def test_all_operators_without_a_converter_are_listed_with_their_lines() -> None:
    class Strange(nn.Module):
        def forward(self, x):
            x = torch.special.bessel_j0(x)
            return torch.special.airy_ai(x), torch.nonzero(x)

    with pytest.raises(UnsupportedOps) as caught:
        from_torch(Strange(), torch.zeros(2, 3))
    assert caught.value.names == (
        "aten.nonzero.default", "aten.special_airy_ai.default", "aten.special_bessel_j0.default",
    )  # fmt: skip
    assert str(caught.value).count("test_program_against_torch.py") == 3
    assert "depends on the data" in str(caught.value)


def test_data_dependent_control_flow_says_what_to_write() -> None:
    class Gate(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(UserError, match=r"torch\.export does not take Gate.*ata-dependent") as caught:
        from_torch(Gate(), torch.zeros(2, 3))
    assert "torch.cond" in caught.value.hint


@pytest.mark.parametrize(
    ("net", "example", "message"),
    [
        (nn.Linear(4, 4), torch.zeros(2, 5), r"fails on the example in PyTorch itself.*2x5 and 4x4"),
        (nn.Embedding(4, 4), torch.zeros(2, 5), "fails on the example in PyTorch itself"),
        (nn.Linear(4, 4), (torch.zeros(2, 4), torch.zeros(2)), "does not take the example: too many"),
        (nn.Linear(4, 4), {"y": torch.zeros(2, 4)}, "does not take the example: missing"),
        (nn.Linear(4, 4), None, "needs an example"),
        (nn.Linear(4, 4), (3,), "has no tensor"),
        (lambda x: x, torch.zeros(2), "takes a torch.nn.Module, got function"),
    ],
)  # fmt: skip
def test_wrong_examples(net: Any, example: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        from_torch(net, example)


def test_inputs_that_are_not_like_the_example() -> None:
    model = from_torch(nn.Linear(4, 4), torch.zeros(2, 4))
    with pytest.raises(ShapeError, match=r"input input must be .*\(n, 4\).*got"):
        model(np.zeros((2, 5), "float32"))
    with pytest.raises(DTypeError, match="float64"):
        model.export(pullback.relax.TensorStructInfo((2, 4), "float64"))


def test_dynamic_shapes_that_do_not_fit() -> None:
    with pytest.raises(UserError, match="Constraints violated") as caught:
        from_torch(Sized(), torch.zeros(4, 3), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    assert "dynamic_shapes" in caught.value.hint


def test_a_model_without_tensors_in_its_results() -> None:
    class Nothing(nn.Module):
        def forward(self, x):
            return None

    with pytest.raises(UserError, match="returns no tensor"):
        from_torch(Nothing(), torch.zeros(2, 3))


def test_a_model_that_writes_into_its_input_warns() -> None:
    class Writes(nn.Module):
        def forward(self, x):
            return x.add_(1)

    model = from_torch(Writes(), torch.zeros(2, 3))
    with pytest.warns(UserWarning, match="writes into its input x"):
        found = model(np.zeros((2, 3), "float32"))
    np.testing.assert_array_equal(np.asarray(found), np.ones((2, 3)))


def test_a_trainer_of_a_module_of_pytorch_names_from_torch() -> None:
    with pytest.raises(ArgumentError, match="Linear of another library") as caught:
        pullback.trainer(nn.Linear(2, 3), "mse", "adam")
    assert "pullback.from_torch" in caught.value.hint


def test_a_converter_that_gives_another_type_is_an_internal_error() -> None:
    own = {"aten.relu": lambda x: op.sum(x)}
    with pytest.raises(pullback.ir.errors.InternalError, match=r"aten\.relu\.default.*gives"):
        from_torch(nn.ReLU(), torch.zeros(2, 3), converters=own)(np.zeros((2, 3), "float32"))


class Noisy(nn.Module):
    """Asks whether it trains, and computes something that is no dropout then."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.bn = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        x = self.bn(self.fc(x))
        return x + torch.rand_like(x) if self.training else x * 2


class Asking(nn.Module):
    """Asks whether it trains, for dropout only."""

    def forward(self, x):
        return F.dropout(x, 0.5, training=self.training)


def test_a_module_that_computes_something_else_in_training_is_exported_in_both_forms() -> None:
    net, x = seeded(Noisy), numbers(4, 4)
    model = from_torch(net, torch.from_numpy(x))
    assert model.inference is not None and net.training
    trainer = pullback.trainer(model, "mse", optim.SGD(lr=0.0))
    losses = [float(trainer.update(x, x)) for _ in range(2)]
    assert losses[0] != losses[1]
    for _ in range(2):
        net(torch.from_numpy(x))
    net.eval()
    close(trainer.predict(x), net(torch.from_numpy(x)))
    close(trainer.state_dict()["bn.running_var"], net.bn.running_var)


def test_a_module_that_asks_for_dropout_only_has_one_form() -> None:
    assert from_torch(Asking(), torch.zeros(2, 3)).inference is None
    assert from_torch(Small(), torch.zeros(2, 3, 6, 6)).inference is None


def test_other_results_in_eval_are_reported() -> None:
    class Auxiliary(nn.Module):
        def forward(self, x):
            return (x, x * 2) if self.training else x + 1

    with pytest.warns(UserWarning, match="Auxiliary returns other tensors in eval"):
        assert from_torch(Auxiliary(), torch.zeros(2, 3)).inference is None
