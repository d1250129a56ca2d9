"""Words of other systems lead to what exists here: names of ops, arguments, methods, classes."""

import importlib
import inspect
import re
import types

import numpy as np
import pytest
from pullback.training import SetupTrainer, Trainer, callbacks, loss, optimizer

import pullback
from pullback import relax
from pullback.ir import NoAttribute, UserError, foreign
from pullback.ir.errors import CallError, near, suggestion
from pullback.ir.op import Op
from pullback.ir.words import explained, guided, unknown_argument
from pullback.relax import op, transform
from pullback.script import relax as R
from pullback.script import tir as T
from tests.errors.models import X, counting_trainer


def all_words():
    tables = (foreign.OPS, foreign.NO_ARGUMENT, foreign.ATTRIBUTES, foreign.CLASSES)
    return [(word, text) for table in tables for word, text in table.items()]


@pytest.mark.parametrize(("word", "text"), all_words())
def test_what_is_named_exists(word, text):
    for name in re.findall(r"\bR\.((?:[a-z]+\.)?[a-z_0-9]+)", text):
        value = R
        for part in name.split("."):
            value = getattr(value, part)
    for name in re.findall(r"\btrainer\.([a-z_]+)", text):
        assert hasattr(Trainer, name), name
    for name in re.findall(r"\b((?:relax|pullback)\.[a-zA-Z_.]*[a-zA-Z_])", text):
        path = name.split(".")
        value = relax if path[0] == "relax" else pullback
        for part in path[1:]:
            value = getattr(value, part)
    for name in re.findall(r"did you mean (\w+)", text):
        assert any(hasattr(package, name) for package in (loss, optimizer, pullback.nn)), name


def test_words_of_ops_are_no_ops_already():
    ours = [name for name, op in Op.registry.items() if op.family != "own"]  # other tests register ops of their own
    known = {n.rpartition(".")[2] for n in [*ours, *Op.aliases]}
    assert not set(foreign.OPS) & known


def test_arguments_lead_to_arguments_that_some_function_has():
    functions = [*Op.registry.values(), Trainer.fit, Trainer.update, pullback.trainer, pullback.compile, SetupTrainer]
    functions += [
        v
        for m in (callbacks, loss, optimizer)
        for v in vars(m).values()
        if inspect.isclass(v) and v.__module__.startswith("pullback")
    ]
    functions += [
        Trainer.save,
        Trainer.lr_find,
        optimizer.ClipByGlobalNorm,
        transform.Gradient,
        relax.training.lr_schedule.StepLR,
    ]
    known = {name for f in functions for name in inspect.signature(f).parameters}
    found = {target for text in foreign.ARGUMENTS.values() for target in text.split()}
    assert found <= known, found - known


@pytest.mark.parametrize(
    ("name", "wanted"),
    {
        "relu": "R.nn.relu", "nn.reluu": "R.nn.relu", "Conv2d": "R.nn.conv2d", "softmx": "R.nn.softmax",
        "dense": "R.matmul", "nn.dense": "R.matmul", "nn.Linear": "R.linear", "nn.lstm": "the layers RNN, LSTM and GRU",
        "view": "R.reshape", "unsqueeze": "R.expand_dims", "cross_entropy": "R.nn.cross_entropy",
        "substract": "R.subtract", "Concat": "R.concat",
    }.items(),
)  # fmt: skip
def test_names_after_r(name, wanted):
    with pytest.raises(NoAttribute, match=re.escape(f"there is no R.{name}")) as caught:
        value = R
        for part in name.split("."):
            value = getattr(value, part)
    assert wanted in str(caught.value)
    assert "softmin" not in str(caught.value) and "selu" not in str(caught.value)


@pytest.mark.parametrize("name", ["foo", "nn.qqq", "xyzzy", "nn.blub"])
def test_names_that_are_near_to_nothing_get_no_suggestion(name):
    assert suggestion(name, [o.short for o in Op.registry.values()], foreign.OPS) == ""


def test_near_is_near():
    assert near("fitt", ["fit", "predict"]) == ["fit"]
    assert near("foo", ["floor", "flip"]) == []
    assert near("lstm", ["softmin", "lerp"]) == []


@pytest.mark.parametrize("name", ["cat", "concatenate", "transpose", "clamp", "mul", "eq", "bmm"])
def test_names_of_the_same_meaning_are_ops(name):
    assert isinstance(getattr(R, name), Op)
    assert isinstance(getattr(op, name), Op)


def fit(**options):
    return lambda trainer: trainer.fit(X, np.zeros((4, 2), "float32"), **options)


CALLS = {
    "learning_rate": (lambda t: optimizer.SGD(learning_rate=0.1), "SGD(): argument 'learning_rate'", "mean lr?"),
    "momentum": (lambda t: optimizer.SGD(0.1, momentum=0.9), "SGD(): argument 'momentum'", "MomentumSGD(lr, momentum)"),
    "no lr": (lambda t: optimizer.SGD(), "SGD(): missing a required argument: 'lr'", "its arguments are (lr,"),
    "parameters": (lambda t: optimizer.Adam(params=[]), "Adam(): argument 'params'", "the trainer does that"),
    "batchsize": (fit(batchsize=4), "Trainer.fit(): argument 'batchsize'", "did you mean batch_size?"),
    "progress": (fit(progress=False), "Trainer.fit(): argument 'progress'", "did you mean verbose?"),
    "restore_best_weights": (
        lambda t: callbacks.EarlyStopping(restore_best_weights=True),
        "EarlyStopping(): argument 'restore_best_weights'",
        "did you mean restore_best?",
    ),
    "epoch": (fit(epoch=1), "Trainer.fit(): argument 'epoch'", "did you mean epochs?"),
    "workers": (fit(workers=4), "Trainer.fit(): argument 'workers'", "a thread reads batches ahead of the steps"),
    "callbacks": (lambda t: pullback.trainer(None, callbacks=[]), "pullback.trainer(): argument 'callbacks'", "fit("),
    "no data": (lambda t: t.fit(), "Trainer.fit(): missing a required argument: 'x'", "its arguments are (x, y=None,"),
    "update": (lambda t: t.update(X), "Trainer.update(): missing", "its arguments are (input_instances, targets,"),
    "evaluate": (lambda t: t.evaluate(), "Trainer.evaluate(): missing", "its arguments are (x, y=None,"),
    "metrics": (lambda t: pullback.trainer(None, metrics=[]), "pullback.trainer(): argument 'metrics'", "evaluate("),
    "criterion": (lambda t: pullback.trainer(None, criterion=1), "pullback.trainer(): argument 'criterion'", "loss?"),
    "backend": (lambda t: pullback.compile(None, backend="x"), "pullback.compile(): argument 'backend'", "target?"),
    "dim": (lambda t: op.sum(relax.const([1.0]), dim=0), "sum: argument 'dim'", "did you mean axis?"),
    "loss": (lambda t: loss.CrossEntropyLoss(weight=1), "CrossEntropyLoss(): argument 'weight'", "loss_args"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    make, message, hint = CALLS[name]
    with pytest.raises(CallError) as caught:
        make(counting_trainer())
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint
    assert isinstance(caught.value, UserError) and isinstance(caught.value, TypeError)


@pytest.mark.parametrize("name", ["cuda", "to", "backward", "zero_grad", "step", "compile", "parameters", "eval"])
def test_methods_of_trainers_elsewhere(name):
    with pytest.raises(NoAttribute, match=f"the trainer has no attribute '{name}'") as caught:
        getattr(counting_trainer(), name)
    assert caught.value.hint == foreign.ATTRIBUTES[name]
    assert not hasattr(counting_trainer(), name)


@pytest.mark.parametrize("make", [
    lambda: pullback.tensor([1.0]), lambda: optimizer.SGD(0.1), loss.MSELoss, lambda: counting_trainer().mod,
    relax.BlockBuilder,
])  # fmt: skip
def test_other_objects_explain_their_attributes(make):
    with pytest.raises(NoAttribute) as caught:
        make().backward  # noqa: B018
    assert caught.value.hint == foreign.ATTRIBUTES["backward"]
    assert getattr(make(), "_nothing", 3) == 3


@pytest.mark.parametrize(
    ("package", "name", "wanted"),
    [
        (loss, "CrossEntropy", "CrossEntropyLoss"), (loss, "MSE", "MSELoss"), (optimizer, "Adm", "Adam"),
        (optimizer, "Momentum", "MomentumSGD"), (pullback, "fit", "pullback.trainer"),
            (pullback, "losses", "pullback.training.loss"),
        (pullback.training, "Trainr", "Trainer"),
    ],
)  # fmt: skip
def test_names_of_packages(package, name, wanted):
    with pytest.raises(NoAttribute, match=re.escape(f"{package.__name__} has no {name!r}")) as caught:
        getattr(package, name)
    assert wanted in str(caught.value)


def test_errors_from_inside_are_left_alone():
    @explained
    def outer(x):
        return len(x)

    with pytest.raises(TypeError, match="has no len") as caught:
        outer(3)
    assert not isinstance(caught.value, UserError)
    assert unknown_argument("qqq", ["x"], "its arguments are (x)") == "its arguments are (x)"


def test_subclasses_are_named_as_what_they_are():
    @guided
    class Base:
        def run(self, size):
            return size

    class Special(Base):
        pass

    with pytest.raises(CallError, match=r"Special\.run\(\): argument 'sizes' does not exist(.|\n)*did you mean size\?"):
        Special().run(sizes=3)
    assert inspect.signature(Base.run).parameters.keys() == {"self", "size"}


# -- what is public


def test_every_op_has_its_signature_name_and_documentation():
    assert str(inspect.signature(R.nn.conv2d)).startswith("(data, weight, strides=1, padding=0, dilation=1, groups=1")
    for o in Op.registry.values():
        shown = inspect.signature(o).parameters
        assert list(shown) == [*o.signature.tensors, *o.signature.attrs], o.short
        assert o.__name__ == o.short.rpartition(".")[2]
        assert o.__doc__.startswith(f"{o.short}(")


def test_dir_shows_public_names_only():
    for module in (R, T, pullback):
        foreign_names = {"Any", "annotations", "Mapping", "Sequence", "NoReturn", "builtins", "sys", "dataclass", "Op"}
        assert not foreign_names & set(dir(module)), module
        for name in dir(module):
            assert getattr(module, name) is not None
    assert {"matmul", "nn", "Tensor", "function", "const"} <= set(dir(R))
    assert {"grid", "Buffer", "exp", "float32", "max", "parallel"} <= set(dir(T))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("pullback.training", "Trainer"), ("pullback.training.loss", "MSELoss"), ("pullback.transform", "Gradient"),
        ("pullback.training.optimizer.adam", "Adam"), ("pullback.op", "matmul"), ("pullback.op.nn", "relu"),
        ("pullback.relax.op.nn", "relu"), ("pullback.relax.op.image", "resize2d"), ("pullback.relax.optimizer", "SGD"),
        ("pullback.relax.op.random", "normal"),
    ],
)  # fmt: skip
def test_short_names_import(path, name):
    module = importlib.import_module(path)
    assert getattr(module, name) is not None
    namespace: dict = {}
    exec(f"from {path} import {name}", namespace)
    assert namespace[name] is getattr(module, name)


def test_a_short_name_is_the_same_module():
    import pullback.training.optimizer.adam as short

    own = importlib.import_module("pullback.relax.training.optimizer.adam")
    assert short is own and own.__name__ == "pullback.relax.training.optimizer.adam"
    assert own.__spec__.name == own.__name__
    assert isinstance(op.sort, Op) and isinstance(op.nn.softmax, Op)  # importing changed no attribute
    for name in pullback.__all__:
        value = getattr(pullback, name)
        if isinstance(value, types.ModuleType):
            assert importlib.import_module(f"pullback.{name}") is value


def test_own_ops_are_found_as_the_documentation_writes_them():
    from pullback import te
    from pullback.relax.op import register_op

    @register_op("own.test_words")
    def twice(x):
        return te.compute(x.shape, lambda *i: x[i] + x[i])

    assert op.own.test_words is twice and pullback.relax.op.own.test_words is R.own.test_words


def test_adam_has_pytorchs_learning_rate():
    assert optimizer.Adam().hyperparameters["lr"] == 1e-3
