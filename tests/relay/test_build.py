"""relay.build, graph modules, exported libraries, and the options of builds."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import pullback
from pullback import relay
from pullback.contrib import graph_executor, graph_runtime
from pullback.ir import IRModule
from pullback.ir.errors import ArgumentError, NameNotFound, ShapeError, UserError
from pullback.relay.backend import Executor, Runtime, vm
from pullback.relay.build_module import BuildModule, bind_params_by_name, build, build_config, optimize
from pullback.relay.lower import NotDataflow, lower
from pullback.relay.param_dict import save_param_dict
from pullback.runtime.registry import get_global_func
from tests.relay.programs import W, X, chosen_function, matrix, nested_tuples, straight

EXPECTED = np.tanh(X * W) + 1
NEEDS_CC = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture
def factory():
    return build(IRModule.from_expr(straight()), target="llvm", params={"w": W})


class TestBuild:
    def test_three_parts(self):
        graph, lib, params = build(straight(), "llvm", params={"w": W, "nobody": X})
        assert list(params) == ["w"]
        module = graph_executor.create(graph, lib, pullback.cpu(0))
        module.set_input("x", X)
        module.set_input(**params)
        module.run()
        np.testing.assert_allclose(module.get_output(0).numpy(), EXPECTED, rtol=1e-6)

    def test_parts_do_not_hold_the_values_and_the_whole_does(self, factory):
        graph, lib, _ = factory
        bare = graph_executor.create(graph, lib)
        bare.run(x=X)
        np.testing.assert_array_equal(bare.get_output(0).numpy(), np.ones((2, 3)))  # w is zeros
        whole = graph_executor.GraphModule(factory["default"](pullback.cpu()))
        whole.run(x=X)
        np.testing.assert_allclose(whole.get_output(0).numpy(), EXPECTED, rtol=1e-6)

    def test_a_gradient(self):
        x, w = matrix("x"), matrix("w")
        gradient = relay.transform.gradient(relay.Function([x, w], relay.sum(x * w)))
        _, lib, _ = build(gradient, "llvm")
        module = lib["default"](pullback.cpu())
        module.run(x=X, w=W)
        assert module.get_num_outputs() == 3
        np.testing.assert_allclose(module.get_output(1).numpy(), W)
        np.testing.assert_allclose(module.get_output(2).numpy(), X)

    def test_the_graph_is_consistent(self, factory):
        graph = json.loads(factory.get_graph_json())
        names = [n["name"] for n in graph["nodes"]]
        assert [names[k] for k in graph["arg_nodes"]] == ["x", "w"]
        assert [n["op"] for n in graph["nodes"] if n["name"] in ("x", "w")] == ["null", "null"]
        assert names[graph["heads"][0][0]] == "add"
        rows = graph["node_row_ptr"]
        for key in ("shape", "dltype", "storage_id"):
            assert len(graph["attrs"][key][1]) == rows[-1]
        for number, node in enumerate(graph["nodes"]):
            assert all(source < number for source, _, _ in node["inputs"])
            if node["op"] == "tvm_op":
                assert int(node["attrs"]["num_inputs"]) == len(node["inputs"])
                assert rows[number + 1] - rows[number] == int(node["attrs"]["num_outputs"])

    def test_results_in_tuples_are_flat(self):
        module = build(nested_tuples(), "llvm")["default"]()
        module.run(x=X, w=W)
        results = [module.get_output(k).numpy() for k in range(module.get_num_outputs())]
        for result, expected in zip(results, (X * W, X + W, X, X * W), strict=True):
            np.testing.assert_allclose(result, expected)

    def test_what_is_no_dataflow(self):
        with pytest.raises(NotDataflow, match=r"relay\.build runs dataflow only; closure"):
            build(chosen_function(), "llvm")

    def test_mistakes(self, factory):
        with pytest.raises(ArgumentError, match="build takes a module or a function, not int"):
            build(3)
        with pytest.raises(ArgumentError, match="there is no executor 'interpreter'"):
            build(straight(), executor="interpreter")
        with pytest.raises(ShapeError, match="%w must have shape"):
            build(straight(), params={"w": W[0]})
        with pytest.raises(ArgumentError, match="the host must be the target"):
            build(straight(), "llvm", target_host="llvm -mcpu=x86-64")
        with pytest.raises(NameNotFound, match="the library has no function 'main'"):
            factory["main"]
        with pytest.raises(ArgumentError, match="text of a graph"):
            graph_executor.create("no graph", factory.get_lib())
        other = build(doubled("z"), "llvm")
        with pytest.raises(ArgumentError, match="of different functions"):
            graph_executor.create(other.get_graph_json(), factory.get_lib())


def doubled(name: str) -> relay.Function:
    z = matrix(name)
    return relay.Function([z], z + z)


class TestGraphModule:
    @pytest.fixture
    def module(self, factory):
        return graph_executor.GraphModule(factory["default"](pullback.cpu()))

    def test_inputs_by_number_name_and_keyword(self, module):
        for setting in (
            lambda: module.set_input(0, X),
            lambda: module.set_input("x", X),
            lambda: module.set_input(x=X),
        ):
            module.set_input(x=np.zeros((2, 3), "float32"))
            setting()
            module.run()
            np.testing.assert_allclose(module.get_output(0).numpy(), EXPECTED, rtol=1e-6)
        assert module.get_num_inputs() == 2
        assert module.get_input_index("w") == 1
        assert module.get_input_index("v") == -1
        assert module.get_input_info() == ({"x": (2, 3), "w": (2, 3)}, {"x": "float32", "w": "float32"})
        np.testing.assert_array_equal(module.get_input("w").numpy(), W)

    def test_set_inputs_are_copies_but_for_zero_copy(self, module):
        mine = X.copy()
        module.set_input("x", mine)
        mine[:] = 0
        module.run()
        np.testing.assert_allclose(module.get_output(0).numpy(), EXPECTED, rtol=1e-6)
        module.set_input_zero_copy("x", mine)
        mine[:] = X
        module.run()
        np.testing.assert_allclose(module.get_output(0).numpy(), EXPECTED, rtol=1e-6)

    def test_results_into_a_tensor(self, module):
        out = pullback.runtime.empty((2, 3))
        module.run(x=X)
        module["get_output"](0, out)
        np.testing.assert_allclose(out.numpy(), EXPECTED, rtol=1e-6)

    def test_parameters_as_bytes(self, factory):
        module = factory.get_lib()["default"]()
        module.load_params(save_param_dict(factory.get_params()))
        other = factory.get_lib()["default"]()
        other.share_params(module, save_param_dict(factory.get_params()))
        for one in (module, other):
            one.run(x=X)
            np.testing.assert_allclose(one.get_output(0).numpy(), EXPECTED, rtol=1e-6)

    def test_mistakes(self, module):
        with pytest.raises(ArgumentError, match="no results yet"):
            module.get_output(0)
        with pytest.raises(NameNotFound, match="there is no input 'v'"):
            module.set_input("v", X)
        with pytest.raises(ArgumentError, match="there is no input 2"):
            module.set_input(2, X)
        with pytest.raises(ShapeError, match="input 'x' must have shape"):
            module.set_input("x", X[0])
        module.run(x=X)
        with pytest.raises(ArgumentError, match="there is no output 1"):
            module.get_output(1)

    def test_time(self, module):
        result = module.benchmark(pullback.cpu(), repeat=3, number=2, x=X)
        assert len(result.results) == 3
        assert result.min <= result.median <= result.max
        assert "mean (ms)" in str(result)
        assert len(module.benchmark(repeat=2, number=1, min_repeat_ms=1).results) == 2


@NEEDS_CC
class TestExport:
    def test_a_library_is_loaded_with_its_values(self, factory, tmp_path):
        file = factory.export_library(tmp_path / "net.so")
        loaded = pullback.runtime.load_module(file)
        assert loaded.get_graph_json() == factory.get_graph_json()
        np.testing.assert_array_equal(loaded.get_params()["w"].numpy(), W)
        module = graph_executor.GraphModule(loaded["default"](pullback.cpu()))
        module.run(x=X)
        np.testing.assert_allclose(module.get_output(0).numpy(), EXPECTED, rtol=1e-6)

    def test_a_check_of_values_fails_there_too(self, tmp_path):
        x, index = matrix("x"), relay.var("index", relay.TensorType((1,), "int64"))
        taken = relay.Function([x, index], relay.Call(relay.op.get("relax.take"), [x, index], {"axis": 0}))
        module = pullback.runtime.load_module(build(taken, "llvm").export_library(tmp_path / "take.so"))["default"]()
        module.run(x=X, index=np.array([1]))
        np.testing.assert_array_equal(module.get_output(0).numpy(), X[1:])
        with pytest.raises(ArgumentError, match="default_function: "):
            module.run(index=np.array([7]))

    def test_files_that_are_no_libraries(self, tmp_path):
        with pytest.raises(UserError, match="there is no file"):
            pullback.runtime.load_module(tmp_path / "none.so")
        (tmp_path / "bad.so").write_bytes(b"nothing")
        with pytest.raises(UserError, match="cannot be loaded"):
            pullback.runtime.load_module(tmp_path / "bad.so")

    def test_sizes_have_to_be_known(self, tmp_path):
        x = relay.var("x", relay.TensorType((relay.Any(), 3)))
        with pytest.raises(ArgumentError, match="a C function has fixed sizes, and any_1 is not known"):
            build(relay.Function([x], x + x), "llvm").export_library(tmp_path / "net.so")


def test_a_build_in_steps():
    module = BuildModule()
    with pytest.raises(UserError, match="nothing is built yet"):
        module.get_json()
    module.set_params({"w": W})
    with build_config(opt_level=3):
        graph, lib, params = module.build(straight(), "llvm")
    assert (graph, list(params)) == (module.get_json(), ["w"])
    runtime = graph_runtime.create(graph, module.get_module(), pullback.cpu())
    runtime.run(x=X, **module.get_params())
    np.testing.assert_allclose(runtime.get_output(0).numpy(), EXPECTED, rtol=1e-6)
    assert lib.get_source().count("R.tanh") == 1


class TestParameters:
    def test_they_become_constants(self):
        bound = bind_params_by_name(straight(), {"w": W, "nobody": X})
        assert [p.name for p in bound.params] == ["x"]
        np.testing.assert_allclose(relay.create_executor().evaluate(bound)(X).numpy(), EXPECTED, rtol=1e-6)
        function = get_global_func("relay.build_module.BindParamsByName")
        pullback.ir.assert_structural_equal(
            function(straight(), {"w": relay.const(W)}), bind_params_by_name(straight(), {"w": W})
        )

    def test_two_of_one_name(self):
        one, two = matrix("x"), matrix("x")
        with pytest.raises(ArgumentError, match="2 parameters of the function are called 'x'"):
            bind_params_by_name(relay.Function([one, two], one + two), {"x": X})

    def test_optimize(self):
        module, params = optimize(IRModule.from_expr(straight()), "llvm", {"w": W})
        assert params == {}
        np.testing.assert_allclose(relay.create_executor("vm", module).evaluate()(X).numpy(), EXPECTED, rtol=1e-6)


class TestOptions:
    def test_executor_and_runtime(self):
        executor = Executor("aot", {"unpacked-api": True})
        assert (executor.name, executor["unpacked-api"]) == ("aot", True)
        assert executor == Executor(executor) != Executor("aot")
        assert Executor().name == "graph"
        assert Runtime("crt", {"system-lib": True}).get("system-lib") is True
        assert "aot" in Executor.list_registered()
        assert Executor.list_registered_options("graph") == {"link-params": "bool"}

    def test_mistakes(self):
        with pytest.raises(ArgumentError, match="has no option 'fast'"):
            Executor("graph", {"fast": True})
        with pytest.raises(ArgumentError, match="must be of type bool"):
            Executor("graph", {"link-params": "yes"})
        with pytest.raises(ArgumentError, match="there is no runtime 'c'"):
            Runtime("c")


class TestVirtualMachine:
    def test_compiled_with_parameters(self):
        executable = vm.compile(straight(), "llvm", params={"w": W})
        machine = pullback.runtime.vm.VirtualMachine(executable, pullback.cpu())
        for result in (machine.run(X), machine.invoke("main", X), machine.invoke("main", x=X), machine["main"](X)):
            np.testing.assert_allclose(result.numpy(), EXPECTED, rtol=1e-6)

        assert isinstance(executable, pullback.runtime.vm.Executable)

    def test_inputs_that_are_kept(self):
        machine = pullback.runtime.vm.VirtualMachine(vm.compile(straight()), pullback.cpu())
        machine.set_input("main", X, w=X)
        machine.set_one_input("main", "w", W)
        machine.run()
        np.testing.assert_allclose(machine.get_outputs()[0].numpy(), EXPECTED, rtol=1e-6)
        with pytest.raises(ArgumentError, match="main has no parameter 'v'"):
            machine.set_input("main", X, v=W)
        assert len(machine.benchmark(pullback.cpu(), repeat=2, number=1).results) == 2

    def test_functions_of_the_graph_ir_have_the_same_face(self):
        executable = pullback.compile(lower(straight()))
        machine = pullback.runtime.vm.VirtualMachine(executable, pullback.cpu())
        machine.set_input("main", X, w=W)
        np.testing.assert_allclose(machine.run().numpy(), EXPECTED, rtol=1e-6)

    def test_the_compiler_in_steps(self):
        compiler = vm.VMCompiler()
        with pytest.raises(UserError, match="nothing is compiled yet"):
            compiler.get_exec()
        compiler.set_params({"w": W})
        compiler.lower(IRModule.from_expr(straight()), "llvm")
        compiler.codegen()
        assert compiler.get_exec().get_function_params("main") == ["x"]
        assert compiler.get_exec().globals == ["main"]


def test_devices_and_targets():
    (target,) = pullback.target.Target.canon_multi_target("llvm")
    device = pullback.nd.device(target.get_target_device_type(), 0)
    assert device == pullback.cpu()
    assert (device.device_type, device.device_id, device.exist) == (1, 0, True)
    assert [str(t) for t in pullback.target.Target.canon_multi_target({device: "llvm"})] == ["llvm"]
    assert pullback.runtime.enabled("llvm")
    assert not pullback.runtime.enabled("cuda")
