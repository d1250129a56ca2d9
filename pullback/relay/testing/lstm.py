"""A recurrent network of LSTM cells, unrolled. Hochreiter & Schmidhuber, Long Short-Term Memory, 1997."""

from __future__ import annotations

from typing import Any

from pullback import relay
from pullback.relay.scope_builder import ScopeBuilder
from pullback.relay.testing.init import create_workload
from pullback.relay.testing.layers import dense_add_bias


def _types(num_hidden: int, batch_size: int, dtype: str) -> tuple[Any, Any, Any]:
    """Of a state, a weight and a bias."""
    state = relay.TensorType((batch_size, num_hidden), dtype)
    return state, relay.TensorType((4 * num_hidden, num_hidden), dtype), relay.TensorType((4 * num_hidden,), dtype)


def lstm_cell(num_hidden: int, batch_size: int = 1, dtype: str = "float32", name: str = "") -> relay.Function:
    """A function of the inputs, the states (h, c), and weight and bias for the inputs and for h; it returns the output
    and the next states: (h, (h, c)). The gates are those of the inputs, of forgetting, of the cell and of the output.
    """
    state, weight, bias = _types(num_hidden, batch_size, dtype)
    states_type = relay.TupleType([state, state])
    result_type = relay.TupleType([state, states_type])
    inputs, states = relay.Var("inputs", state), relay.Var("states", states_type)
    i2h_weight, i2h_bias = relay.Var("i2h_weight", weight), relay.Var("i2h_bias", bias)
    h2h_weight, h2h_bias = relay.Var("h2h_weight", weight), relay.Var("h2h_bias", bias)

    scope = ScopeBuilder()
    units = {"units": 4 * num_hidden}
    of_inputs = scope.let("i2h", dense_add_bias(inputs, i2h_weight, i2h_bias, name=f"{name}i2h", **units))
    hidden = relay.TupleGetItem(states, 0)
    of_states = scope.let("h2h", dense_add_bias(hidden, h2h_weight, h2h_bias, name=f"{name}h2h", **units))
    gates = scope.let("gates", relay.add(of_inputs, of_states))
    parts = scope.let("slice_gates", relay.split(gates, indices_or_sections=4, axis=1).astuple())
    names = ("in_gate", "forget_gate", "in_transform", "out_gate")
    functions = (relay.sigmoid, relay.sigmoid, relay.tanh, relay.sigmoid)
    found = [
        scope.let(n, f(relay.TupleGetItem(parts, i))) for i, (n, f) in enumerate(zip(names, functions, strict=True))
    ]
    taken, kept, new, shown = found
    kept_cell = relay.multiply(kept, relay.TupleGetItem(states, 1))
    next_c = scope.let("next_c", relay.add(kept_cell, relay.multiply(taken, new)))
    next_h = scope.let("next_h", relay.multiply(shown, relay.tanh(next_c)))
    scope.ret(relay.Tuple([next_h, relay.Tuple([next_h, next_c])]))
    params = [inputs, states, i2h_weight, i2h_bias, h2h_weight, h2h_bias]
    return relay.Function(params, scope.get(), result_type)


def get_net(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> relay.Function:
    """``iterations`` cells, each with inputs ("data") and parameters of its own; the states begin with zeros. It
    returns the last output."""
    state, weight, bias = _types(num_hidden, batch_size, dtype)
    scope = ScopeBuilder()
    zeros = scope.let("zeros", relay.zeros((batch_size, num_hidden), dtype))
    states = scope.let("init_states", relay.Tuple([zeros, zeros]))
    out = zeros
    for i in range(iterations):
        inputs = relay.Var("data", state)
        parameters = [
            relay.Var(f"{kind}_{i}_{end}", type_)
            for kind in ("i2h", "h2h")
            for end, type_ in (("weight", weight), ("bias", bias))
        ]
        cell = lstm_cell(num_hidden, batch_size, dtype, f"lstm_{i}")
        call = scope.let(f"call_{i}", relay.Call(cell, [inputs, states, *parameters]))
        out = scope.let(f"out_{i}", relay.TupleGetItem(call, 0))
        states = scope.let(f"states_{i}", relay.TupleGetItem(call, 1))
    scope.ret(out)
    body = scope.get()
    return relay.Function(relay.analysis.free_vars(body), body, state)


def get_workload(
    iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32"
) -> tuple[Any, dict[str, Any]]:
    """The network as a module, and values of its parameters."""
    return create_workload(get_net(iterations, num_hidden, batch_size, dtype))
