"""Low-rank updates and adapters: what is trained and kept, merging, files, wrong arguments."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import pullback
from pullback import nn, optim
from pullback.ir.errors import ArgumentError, CheckpointError, ShapeError, UserError
from pullback.nn import functional as F
from pullback.relax import TensorStructInfo
from pullback.relax.convention import ADJOINT, GRADIENT, Convention
from pullback.relax.struct_info import TensorStructInfo as Info
from pullback.script import ir as I
from pullback.script import relax as R

RNG = np.random.default_rng(1)
X = RNG.normal(size=(24, 11)).astype("float32")
Y = RNG.integers(0, 3, 24)


class Block(nn.Module):
    def __init__(self) -> None:
        self.query, self.value = nn.Linear(11, 13), nn.Linear(11, 13)
        self.norm, self.out = nn.BatchNorm1d(13), nn.Linear(13, 11)

    def forward(self, x: Any) -> Any:
        return x + self.out(self.norm(F.tanh(self.query(x)) * self.value(x)))


def net() -> Any:
    return nn.Sequential(Block(), Block(), nn.Linear(11, 3)).init_parameters(3)


def numbers(values: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(value).copy() for name, value in values.items()}


def made(lora: Any, model: Any = None, optimizer: Any = "adam", **options: Any) -> Any:
    model = net() if model is None else model
    return pullback.trainer(model, "cross_entropy", optimizer, example=X, adapt=lora, target="debug", **options)


def trained(lora: Any, **options: Any) -> Any:
    trainer = made(lora, **options)
    for _ in range(3):
        trainer.update(X, Y)
    return trainer


LORA = nn.LoRA(2, 4, ["query", "*.value"], modules_to_save="2.*")
PAIRS = [f"{block}.{layer}.lora_{k}" for block in (0, 1) for layer in ("query", "value") for k in "AB"]


# ---- what is trained


def test_at_first_the_model_computes_what_it_did() -> None:
    model = net()
    before = np.asarray(model(X))
    LORA(model)
    np.testing.assert_allclose(np.asarray(model(X)), before, rtol=1e-5, atol=1e-6)
    a, b = (np.asarray(dict(model.named_parameters())[f"0.query.lora_{k}"]) for k in "AB")
    assert a.shape == (2, 11) and b.shape == (13, 2) and (b == 0).all()
    assert 0.2 < np.abs(a).max() <= 1 / np.sqrt(11)  # kaiming_uniform with a = √5


def test_only_updates_and_what_is_saved_are_trained() -> None:
    trainer = made(LORA)
    assert set(trainer.trained) == {*PAIRS, "2.weight", "2.bias"}
    before = numbers(trainer.params)
    trainer.fit(X, Y, epochs=2, batch_size=12, verbose=0)
    changed = {name for name, value in numbers(trainer.params).items() if not np.array_equal(value, before[name])}
    assert changed == set(trainer.trained)


def test_there_are_no_states_and_no_gradients_of_weights() -> None:
    """Nor is there any tensor of a weight's size in the backward part: widths are prime, and no batch."""
    trainer = made(nn.LoRA(2, 4, "*"))
    shapes = {tuple(s.shape) for s in trainer.optimizer_states}
    weights = {p.shape for name, p in trainer.params.items() if "lora" not in name and len(p.shape) == 2}
    assert weights == {(13, 11), (11, 13), (3, 11)} and not shapes & weights
    function = trainer.mod[ADJOINT]
    returned = [i for kind, i in Convention.of(trainer.mod)[ADJOINT].returns if kind == GRADIENT]
    names = list(trainer.params)
    assert {names[i] for i in returned} == {name for name in names if "lora" in name}
    made_here = {tuple(b.var.struct_info.shape) for b in function.bindings if isinstance(b.var.struct_info, Info)}
    assert not made_here & (weights | {shape[::-1] for shape in weights})


def test_the_summary_says_the_share() -> None:
    trainer = made(nn.LoRA(2, 4, ["query"]))
    summary = trainer.summary()
    parameters = sum(p.size for p in trainer.model.parameters())
    assert summary.parameters - summary.frozen == 2 * (2 * 11 + 13 * 2)
    assert f"Trained: 96 of {parameters:,} parameters ({100 * 96 / parameters:.2g} %)." in str(summary)


def test_scales() -> None:
    assert nn.LoRA(4, 8, "a").scale == 2 and nn.LoRA(4, 8, "a", rslora=True).scale == 4


def test_one_weight_has_one_update_wherever_it_is_used() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.first, self.second = nn.Linear(11, 11), nn.Linear(11, 11)
            self.second.weight = self.first.weight

        def forward(self, x: Any) -> Any:
            return self.second(F.tanh(self.first(x)))

    model = Tied()
    nn.LoRA(2, 4, "second")(model)  # the weight's second name
    assert [n for n, _ in model.named_parameters() if "lora" in n] == ["first.lora_A", "first.lora_B"]
    b = dict(model.named_parameters())["first.lora_B"]
    b.data = RNG.normal(size=(11, 2))
    p = numbers(dict(model.named_parameters()))
    weight = p["first.weight"] + 2 * p["first.lora_B"] @ p["first.lora_A"]
    expected = np.tanh(X @ weight.T + p["first.bias"]) @ weight.T + p["second.bias"]
    np.testing.assert_allclose(np.asarray(model(X)), expected, rtol=2e-4, atol=1e-5)
    trainer = pullback.trainer(model, "mse", "sgd", example=X, target="debug")
    found = trainer.merged_state_dict()
    np.testing.assert_allclose(found["second.weight"].numpy(), weight, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(found["second.weight"].numpy(), found["first.weight"].numpy())


def test_dropout_is_on_the_way_through_the_update_alone() -> None:
    """With ones as inputs, A = B = I and targets that the frozen weight meets, a step's loss counts what was kept."""
    model = nn.Linear(16, 16, bias=False)
    model.weight.data = RNG.normal(size=(16, 16))
    nn.LoRA(16, 16, "weight", dropout=0.75)(model)
    for name, p in model.named_parameters():
        if "lora" in name:
            p.data = np.eye(16)
    x = np.ones((50, 16), "float32")
    y = x @ model.weight.numpy().T
    trainer = pullback.trainer(model, "mse", optim.SGD(lr=1e-12), example=x, target="debug")
    kept = [trainer.update(x, y).item() * x.size / 16 for _ in range(3)]  # (1 / 0.25)² for each
    for count in kept:
        assert abs(count - round(count)) < 1e-2 and 100 < count < 300
    assert len({round(k) for k in kept}) > 1
    np.testing.assert_allclose(np.asarray(trainer.predict(x)), y + 1, rtol=1e-5, atol=1e-5)


def test_names_and_groups_of_updates() -> None:
    """Patterns of other parts of the package know them: LoRA+ has another rate for B; B alone is trained."""
    groups = optim.ParameterGroups(optim.SGD(lr=0.1), {"*.lora_B": {"lr": 1.0}})
    one, other = made(LORA, optimizer=groups), made(LORA, optimizer=optim.SGD(lr=0.1))
    one.update(X, Y), other.update(X, Y)
    ratio = np.asarray(one.value_of("0.query.lora_B")) / np.asarray(other.value_of("0.query.lora_B"))
    np.testing.assert_allclose(ratio, 10, rtol=1e-4)
    only = made(LORA, trainable=["*.lora_B"])
    assert set(only.trained) == {name for name in PAIRS if name.endswith("B")}
    only.unfreeze("*.lora_A")
    assert set(only.trained) == set(PAIRS)
    only.freeze("0.*")
    assert set(only.trained) == {name for name in PAIRS if name[0] == "1"}


def test_a_head_outside_is_trained_as_ever() -> None:
    model = nn.Sequential(nn.LoRA(2, 4, "query")(Block()), nn.Linear(11, 3))
    trainer = made(None, model)
    assert set(trainer.trained) == {"0.query.lora_A", "0.query.lora_B", "1.weight", "1.bias"}


# ---- merging


def test_merged_weights_predict_the_same() -> None:
    trainer = trained(LORA)
    found, predicted = trainer.merged_state_dict(), np.asarray(trainer.predict(X))
    other = net()
    assert set(found) == set(other.state_dict())
    other.load_state_dict(found)
    np.testing.assert_allclose(np.asarray(other(X)), predicted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(trainer.without_updates().predict(X)), predicted, rtol=1e-5, atol=1e-6)
    p = numbers(trainer.params)
    expected = p["0.query.weight"] + 2 * p["0.query.lora_B"].astype(float) @ p["0.query.lora_A"]
    np.testing.assert_array_equal(found["0.query.weight"].numpy(), expected.astype("float32"))
    assert list(LORA.merge(trainer)) == list(found)


def test_without_updates_the_merged_state_dict_is_the_state_dict() -> None:
    trainer = made(None)
    for name, value in trainer.merged_state_dict().items():
        np.testing.assert_array_equal(value.numpy(), trainer.state_dict()[name].numpy())


def test_modules_are_merged_and_unmerged() -> None:
    trainer = trained(LORA)
    model, before = trainer.model, numbers(trainer.state_dict())
    predicted = np.asarray(trainer.predict(X))
    assert LORA.merge(model) is model
    assert list(model.state_dict()) == list(net().state_dict())
    assert all(p.requires_grad for p in model.parameters())
    np.testing.assert_allclose(np.asarray(model(X)), predicted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(trainer.predict(X)), predicted)  # which has the parts still
    other = pullback.trainer(copy.deepcopy(model), "cross_entropy", "sgd", example=X, target="debug")
    np.testing.assert_allclose(np.asarray(other.predict(X)), predicted, rtol=1e-5, atol=1e-6)
    assert LORA.unmerge(model) is model
    after = numbers(model.state_dict())
    assert set(after) == set(before)
    for name, value in after.items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    assert {n for n, p in model.named_parameters() if p.requires_grad} == set(trainer.trained)


def test_libraries_without_a_step_have_merged_weights(tmp_path: Path) -> None:
    trainer = trained(LORA)
    with pytest.raises(ArgumentError, match="a library with a step trains the updates"):
        trainer.export(tmp_path / "lib", functions=["step", "predict"], merge=True)
    exported = trainer.export(tmp_path / "lib", name="net", functions=["predict_one"])
    weights = safetensors.numpy.load_file(exported.folder / "net.safetensors")
    assert not any("lora" in name for name in weights)
    for name, value in trainer.merged_state_dict().items():
        kind = "param" if name in trainer.params else "state"
        np.testing.assert_array_equal(weights[f"{kind}.{name}"], value.numpy())
    kept = trainer.export(tmp_path / "kept", name="net", functions=["predict_one"], merge=False)
    assert "param.0.query.lora_A" in safetensors.numpy.load_file(kept.folder / "net.safetensors")


def test_mixed_precision() -> None:
    one, other = made(LORA), made(LORA, precision="bfloat16")
    losses = [[t.update(X, Y).item() for _ in range(4)] for t in (one, other)]
    np.testing.assert_allclose(*losses, rtol=2e-2)
    assert all(p.dtype == "float32" for p in other.params.values())


def test_merging_needs_updates() -> None:
    with pytest.raises(UserError, match="no updates to merge"):
        LORA.merge(net())
    with pytest.raises(UserError, match="no merged updates"):
        LORA.unmerge(LORA(net()))
    with pytest.raises(ArgumentError, match=r"nn\.Module or a trainer, got dict"):
        LORA.merge({})


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))], ids=["copy", "pickle"])
def test_copies_of_trainers_have_updates(copied: Any) -> None:
    trainer = trained(LORA)
    other = copied(trainer)
    np.testing.assert_array_equal(np.asarray(other.predict(X)), np.asarray(trainer.predict(X)))
    assert other.update(X, Y).item() == trainer.update(X, Y).item()
    for name, value in trainer.merged_state_dict().items():
        np.testing.assert_array_equal(other.merged_state_dict()[name].numpy(), value.numpy())
    with pytest.raises(UserError, match="cannot be taken out"):
        other.without_updates()


def test_checkpoints_have_updates(tmp_path: Path) -> None:
    trainer = trained(LORA)
    trainer.save(tmp_path / "t.safetensors")
    other = made(LORA)
    other.load(tmp_path / "t.safetensors")
    assert other.update(X, Y).item() == trainer.update(X, Y).item()


# ---- files of adapters


def test_a_file_has_what_was_added_alone(tmp_path: Path) -> None:
    trainer = trained(LORA)
    path = tmp_path / "adapter.safetensors"
    trainer.save_adapter(path)
    moved = [f"{k}.norm.{s}" for k in (0, 1) for s in ("running_mean", "running_var", "num_batches_tracked")]
    assert set(safetensors.numpy.load_file(path)) == {*PAIRS, "2.weight", "2.bias", *moved}
    other = made(LORA)
    other.load_adapter(path)
    np.testing.assert_array_equal(np.asarray(other.predict(X)), np.asarray(trainer.predict(X)))


def test_files_of_peft_are_read(tmp_path: Path) -> None:
    arrays = {
        f"base_model.model.{name}.weight": RNG.normal(size=shape).astype("float32")
        for name, shape in {"0.query.lora_A": (2, 11), "0.query.lora_B": (13, 2)}.items()
    }
    safetensors.numpy.save_file(arrays, tmp_path / "adapter_model.safetensors", {"format": "pt"})
    trainer = made(nn.LoRA(2, 4, "0.query"))
    trainer.load_adapter(tmp_path / "adapter_model.safetensors")
    for key, value in arrays.items():
        name = key.removeprefix("base_model.model.").removesuffix(".weight")
        np.testing.assert_array_equal(trainer.value_of(name).numpy(), value)


def test_files_of_convolutions_are_read(tmp_path: Path) -> None:
    """PEFT keeps A and B of a convolution as kernels."""
    a, b = RNG.normal(size=(2, 3, 3, 3)).astype("float32"), RNG.normal(size=(4, 2, 1, 1)).astype("float32")
    names = [f"base_model.model.0.lora_{k}.weight" for k in "AB"]
    safetensors.numpy.save_file(dict(zip(names, (a, b), strict=True)), tmp_path / "a.safetensors")
    x = RNG.normal(size=(2, 3, 6, 6)).astype("float32")
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    trainer = pullback.trainer(model, "mse", "sgd", example=x, adapt=nn.LoRA(2, 4, "0"), target="debug")
    trainer.load_adapter(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(trainer.value_of("0.lora_A").numpy(), a.reshape(2, 27))
    np.testing.assert_array_equal(trainer.value_of("0.lora_B").numpy(), b.reshape(4, 2))


def refused(path: Path, arrays: Any, metadata: Any, message: str) -> None:
    safetensors.numpy.save_file(arrays, path, metadata)
    trainer = made(nn.LoRA(2, 4, "0.query"))
    before = numbers(trainer.state_dict())
    with pytest.raises(CheckpointError, match=message):
        trainer.load_adapter(path)
    for name, value in numbers(trainer.state_dict()).items():
        np.testing.assert_array_equal(value, before[name])


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path, a, b = tmp_path / "a.safetensors", np.ones((2, 11), "float32"), np.ones((13, 2), "float32")
    refused(path, {"0.query.lora_C": a}, {}, "adapter of another model: the trainer has no 0.query.lora_C")
    refused(path, {"0.query.lora_A": a, "0.query.lora_B": b[:5]}, {}, r"0.query.lora_B is \(5, 2\) float32 there")
    refused(path, {}, {"format": "pt"}, "it is empty")
    trained(nn.LoRA(2, 6, "0.query")).save_adapter(path)
    with pytest.raises(CheckpointError, match=r"0.query.weight has the scale 3.0 there, 2.0 here"):
        made(nn.LoRA(2, 4, "0.query")).load_adapter(path)
    with pytest.raises(CheckpointError, match=r"it lacks 1\.query\.lora_A"):
        made(nn.LoRA(2, 4, "query")).load_adapter(path)


@pytest.mark.parametrize("damage", ["cut", "header", "missing", "metadata"])
def test_damaged_files_are_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.safetensors"
    trained(LORA).save_adapter(path)
    data = path.read_bytes()
    if damage == "metadata":
        data = data.replace(b"low_rank", b"low_tank")
    path.write_bytes({"cut": data[:-9], "header": data[:40], "missing": b""}.get(damage, data))
    with pytest.raises(CheckpointError, match=r"a\.safetensors: it"):
        made(LORA).load_adapter(path)


# ---- wrong arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 0}, "rank must be an int ≥ 1, got 0"),
        ({"rank": 2.0}, "rank must be an int ≥ 1, got 2.0"),
        ({"alpha": 0}, "alpha must be a number above 0, got 0"),
        ({"dropout": 1.0}, "dropout must be a probability below 1, got 1.0"),
        ({"targets": 3}, "targets must be patterns of layer names, got 3"),
        ({"targets": []}, "targets must be patterns"),
        ({"modules_to_save": 3}, "modules_to_save must be patterns"),
    ],
)
def test_options_are_checked(arguments: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        nn.LoRA(**{"targets": "query", **arguments})


@pytest.mark.parametrize(
    ("targets", "rank", "message"),
    [
        (["qerry"], 2, "no layer matches 'qerry': did you mean 0.query?"),
        (["*.key"], 2, "no layer matches '\\*.key'"),
        (["*.bias"], 2, "'\\*.bias' matches no matrix, only 0.query.bias \\(13,\\)"),
        (["norm"], 2, "'norm' matches no matrix, only 0.norm.weight \\(13,\\)"),
        (["2"], 4, "rank 4 is larger than the weight 2.weight, 3 by 11"),
    ],
)
@pytest.mark.parametrize("as_module", [False, True])
def test_targets_are_checked(targets: Any, rank: int, message: str, as_module: bool) -> None:
    model = net().export(X) if as_module else net()
    with pytest.raises(ArgumentError, match=message):
        nn.LoRA(rank, 4, targets)(model)
    if not as_module:
        assert all(p.requires_grad for p in model.parameters()) and list(model.state_dict()) == list(net().state_dict())


def test_one_update_for_a_weight() -> None:
    model = LORA(net())
    nn.LoRA(2, 4, "out")(model)  # others may have one still
    assert {n for n, p in model.named_parameters() if p.requires_grad} > set(PAIRS)
    with pytest.raises(ArgumentError, match=r"0.query.weight has an update already"):
        nn.LoRA(2, 4, "0.query")(model)
    with pytest.raises(ArgumentError, match=r"0.query.weight has an update already"):
        nn.LoRA(2, 4, "0.query")(LORA(net()).export(X))


def test_dropout_needs_a_product() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            self.scale = nn.Parameter((24, 11))

        def forward(self, x: Any) -> Any:
            return x * self.scale

    model = nn.LoRA(2, 4, "scale", dropout=0.5)(Scaled())
    with pytest.raises(UserError, match="scale has an update with dropout, but is used as no weight of a product"):
        model.export(TensorStructInfo((24, 11), "float32"))


def test_what_is_no_adapter() -> None:
    with pytest.raises(ArgumentError, match=r"adapt must be nn\.LoRA"):
        made("lora")
    with pytest.raises(ArgumentError, match=r"adapt must be nn\.LoRA"):
        made(nn.LoRA)
    with pytest.raises(ArgumentError, match=r"LoRA is for an nn\.Module or an IRModule, got dict"):
        LORA({})


# ---- IRModules


@I.ir_module
class Script:
    @R.function
    def backbone(x: R.Tensor(("n", 11)), w: R.Param((11, 5)), b: R.Param((5,)), v: R.Param((5, 3), trainable=False)):
        h = R.tanh(R.matmul(x, w) + b)
        y = R.matmul(h, v)
        return y


def test_scripts_have_updates_and_adapters() -> None:
    both = [nn.LoRA(2, 4, "w"), nn.Adapter(2, "h", modules_to_save="b")]
    trainer = pullback.trainer(Script, "cross_entropy", "sgd", adapt=both, target="debug")
    parts = [f"h.adapter_{k}.{p}" for k in ("down", "up") for p in ("weight", "bias")]
    assert set(trainer.trained) == {"w.lora_A", "w.lora_B", "b", *parts}
    p = numbers(trainer.params)
    assert all((p[name] == 0).all() for name in ("w.lora_B", *parts[1:])) and (p[parts[0]] != 0).any()
    before = np.asarray(trainer.predict(X))
    np.testing.assert_allclose(before, np.tanh(X @ p["w"] + p["b"]) @ p["v"], rtol=1e-4, atol=1e-6)
    first = trainer.update(X, Y).item()
    trainer.fit(X, Y, epochs=20, batch_size=24, verbose=0)
    assert trainer.update(X, Y).item() < first


def test_updates_are_printed_and_read() -> None:
    model = nn.LoRA(2, 4, "w")(Script)
    from pullback.script import from_source

    again = from_source(model.script())
    assert again.attrs["low_rank"] == model.attrs["low_rank"] == {"w": ("w.lora_A", "w.lora_B", 2.0, 0.0, False)}
    pullback.ir.assert_structural_equal(again, model)


# ---- adapters


def test_adapters_begin_as_nothing_and_are_trained() -> None:
    model = net()
    before = np.asarray(model(X))
    trainer = made(nn.Adapter(4, ["0", "out"], modules_to_save="2.*"), model)
    np.testing.assert_allclose(np.asarray(trainer.predict(X)), before, rtol=1e-5, atol=1e-6)
    layers = ("0", "0.out", "1.out")
    parts = [f"{n}.adapter_{k}.{p}" for n in layers for k in ("down", "up") for p in ("weight", "bias")]
    assert set(trainer.trained) == {*parts, "2.weight", "2.bias"}
    old = numbers(trainer.params)
    trainer.fit(X, Y, epochs=2, batch_size=12, verbose=0)
    changed = {name for name, value in numbers(trainer.params).items() if not np.array_equal(value, old[name])}
    assert changed == set(trainer.trained)


def test_adapters_and_files(tmp_path: Path) -> None:
    adapter = nn.Adapter(4, "out")
    trainer = trained(adapter)
    trainer.save_adapter(tmp_path / "a.safetensors")
    other = made(adapter)
    other.load_adapter(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(np.asarray(other.predict(X)), np.asarray(trainer.predict(X)))
    with pytest.raises(UserError, match=r"the adapters behind 0\.out, 1\.out cannot be part of a weight"):
        trainer.merged_state_dict()


class Awkward(nn.Module):
    """A layer that is called twice, and one that returns two tensors."""

    def __init__(self) -> None:
        self.twice, self.halves, self.unused = nn.Linear(11, 11), Halves(), nn.Linear(11, 11)

    def forward(self, x: Any) -> Any:
        left, right = self.halves(self.twice(self.twice(x)))
        return left * right


class Halves(nn.Module):
    def forward(self, x: Any) -> Any:
        return F.tanh(x), F.relu(x)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ("twice", "layer twice has no one result"),
        ("halves", "layer halves has no one result"),
        ("unused", "no layer matches 'unused'"),
        ("outt", "no layer matches 'outt'"),
    ],
)
def test_layers_are_checked(targets: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        nn.Adapter(4, targets)(Awkward(), X)


def test_adapters_are_checked() -> None:
    for arguments, message in (
        ((0, "out"), "size must be an int ≥ 1, got 0"),
        ((4, "out", "gelo"), "no activation 'gelo': did you mean gelu?"),
        ((4, 3), "targets must be patterns"),
    ):
        with pytest.raises(ArgumentError, match=message):
            nn.Adapter(*arguments)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="need an example of its input"):
        nn.Adapter(4, "out")(net())
    with pytest.raises(ShapeError, match="no fixed size along axis 0"):
        nn.Adapter(4, "out", axis=0)(net(), X)
    model = nn.Adapter(4, "out")(net(), X)
    with pytest.raises(ArgumentError, match=r"layer 0.out has an adapter already"):
        nn.Adapter(4, "out")(model, X)
