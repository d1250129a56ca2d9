"""What is written reads back: random programs."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullback import ir, relay
from pullback.relay import testing
from pullback.relay.infer import infer_module
from pullback.relay.text import astext, load_json, parse, parse_expr, save_json
from pullback.relay.text.literals import number, scalar_text
from pullback.runtime.dtype import NUMPY_DTYPES
from pullback.runtime.tensor import tensor
from tests.relay.random_programs import DATA_TYPES
from tests.relay.random_programs import module as random_module
from tests.relay.traced_programs import Program, results

SEEDS = (*range(40), 70, 106, 395, 464, 571, 934, 1139, 1157)


@pytest.mark.parametrize("seed", SEEDS)
def test_text_of_random_modules_reads_back(seed):
    module = random_module(seed)
    text = astext(module)
    back = parse(text, infer_types=False)
    ir.assert_structural_equal(back, module)
    assert astext(back) == text


@pytest.mark.parametrize("seed", SEEDS)
def test_functions_read_back_alone(seed):
    module = random_module(seed)
    known = ir.IRModule(dict.fromkeys(module, relay.Function((), relay.const(0))), None, DATA_TYPES)
    for name in module:
        text, _, section = astext(module[name]).partition("#[metadata]")
        if not section:
            ir.assert_structural_equal(parse_expr(text, init_module=known), module[name])


@pytest.mark.parametrize("seed", SEEDS)
def test_json_of_random_modules_reads_back(seed):
    module = random_module(seed)
    back = load_json(save_json(module))
    ir.assert_structural_equal(back, module)
    names = [[p.name for p in f.params] for f in module.functions.values()]
    assert [[p.name for p in f.params] for f in back.functions.values()] == names


@pytest.mark.parametrize("seed", range(30))
def test_programs_that_run_read_back(seed):
    """With their types, and with what they compute and do."""
    module = infer_module(Program(seed).module)
    back = parse(astext(module))
    ir.assert_structural_equal(back, module)
    ir.assert_structural_equal(load_json(save_json(module)), module)
    assert results(back) == results(module)


@pytest.mark.parametrize("name", ["mlp", "dqn", "lstm", "dcgan", "resnet", "mobilenet", "squeezenet"])
def test_models_read_back(name):
    """With their types, which are inferred again."""
    module, _ = getattr(testing, name).get_workload(*(1,) * (1 + (name == "lstm")))
    ir.assert_structural_equal(parse(astext(module)), module)
    ir.assert_structural_equal(load_json(save_json(module)), module)


@pytest.mark.parametrize("dtype", [d for d in NUMPY_DTYPES if d != "bool"])
@settings(max_examples=60, deadline=None)
@given(bits=st.integers(0, (1 << 64) - 1))
def test_scalars_read_back_bit_for_bit(dtype, bits):
    kind = NUMPY_DTYPES[dtype]
    array = np.frombuffer(bits.to_bytes(8, "little")[: kind.itemsize], kind).reshape(())
    text = scalar_text(array, dtype)
    if text is None:  # a NaN that is not the usual one
        assert array != array
        return
    read = number(text.removeprefix("-"), text.startswith("-"))
    assert read.dtype == dtype
    assert read.array.tobytes() == array.tobytes()
    assert parse_expr(text).data.numpy().tobytes() == array.tobytes()


PIECES = ("", "(", "}", ")", ";", "%x", "%", '"', "/*", "def", ",", "1", "@", "<", "\n", "meta[a][0]", "#", "=", "é")
DAMAGE = (
    None, -1, 3, 1 << 70, "a", [], {}, True, 1.5, {"node": 10**6}, {"node": 0}, [{"node": 0}], {"attrs": {}},
    {"dtype": "float32", "shape": [2], "data": "AAAA"}, {"float": "x"}, [[[]]],
)  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_damaged_text_is_a_script_error(seed):
    text = astext(random_module(seed), show_meta_data=False)
    source = random.Random(seed)
    for _ in range(10):
        at = source.randrange(len(text))
        damaged = text[:at] + source.choice(PIECES) + text[at + source.randrange(6) :]
        try:
            parse(damaged, infer_types=False)
        except ir.ScriptError as error:
            assert error.message and error.span is not None


@pytest.mark.parametrize("seed", range(40))
def test_damaged_json_is_a_script_error(seed):
    """What save_json did not write gives a program or an error that says so, nothing else."""
    text = save_json(random_module(seed))
    source = random.Random(seed)
    for _ in range(10):
        held = json.loads(text)
        node = source.choice(held["nodes"])
        node[source.choice(sorted(node))] = source.choice(DAMAGE)
        try:
            load_json(json.dumps(held))
        except ir.ScriptError as error:
            assert error.message


def test_a_tensor_of_any_dtype_reads_back():
    for kind in NUMPY_DTYPES.values():
        constant = relay.Constant(tensor(np.arange(6).reshape(2, 3).astype(kind)))
        ir.assert_structural_equal(load_json(save_json(constant)), constant)
        module = ir.IRModule.from_expr(relay.Function((), constant))
        ir.assert_structural_equal(parse(astext(module), infer_types=False), module)
