"""Memory plans: what is done in place, how small the arena is, and what the verifier refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pullback
from pullback.driver.pipeline import lower_function, prepare
from pullback.ir import IRModule
from pullback.relax.training.optimizer import SGD, Adam, MomentumSGD
from pullback.relax.transform.memory.offsets import aligned, assign_offsets, live_bytes
from pullback.relax.transform.memory.order import data_dependences, orders
from pullback.relax.transform.memory.values import Block, Step, Steps, Value
from pullback.relax.transform.plan_memory import MemoryOptions, Plan, plan_memory
from pullback.relax.transform.verify_plan import PlanError, _is_copy, verify_plan
from pullback.script import from_source
from pullback.target import Target
from pullback.tir import Buffer, Check, For, KernelCall, PrimFunc, seq
from pullback.tir.visitor import Substitute, walk
from tests.driver.models import mlp_trainer_module, step_arguments

SIZES = (96, 64, 64, 64, 10)


def planned(module: IRModule, name: str = "__step", **options) -> tuple[Plan, tuple]:
    """The plan of a function, and what the verifier takes beside it."""
    lowered, donate = lower_function(prepare(module), name, {}, Target("llvm"))
    plan = plan_memory(name, lowered[name], lowered, donate, MemoryOptions(**options))
    return plan, (lowered[name], lowered, donate)


def copies(plan: Plan) -> list[str]:
    return [s for s in plan.steps if s.startswith("copy")]


LARGE = (1536, 384, 10)  # long sums of many columns, which take rounds


@pytest.mark.parametrize(("sizes", "batch"), [(SIZES, 32), (LARGE, 1024)], ids=["small", "large"])
@pytest.mark.parametrize("optimizer", [SGD(0.1), MomentumSGD(0.1, 0.9), Adam(0.01)], ids=lambda o: type(o).__name__)
def test_optimizers_write_in_place(optimizer, sizes, batch):
    plan, rest = planned(mlp_trainer_module(sizes, batch, optimizer))
    verify_plan(plan, *rest, deep=True)
    assert copies(plan) == []
    assert plan.arena_bytes == plan.live_bytes
    arena = [p for p in plan.places if p.place == "arena"]
    assert max(p.offset + p.nbytes for p in arena) <= plan.arena_bytes


TIED = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def step(x: R.Tensor((32, 48), "float32"), w: R.Tensor((48, 64), "float32")):
        R.func_attr({"donate": (1,)})
        with R.dataflow():
            h = R.tanh(R.matmul(x, w))
            y = R.matmul(h, R.permute_dims(w))
            d = R.subtract(y, x)
            loss = R.sum(R.multiply(d, d))
            dh = R.multiply(R.matmul(d, w), R.subtract(R.const(1.0, "float32"), R.multiply(h, h)))
            dw = R.add(R.matmul(R.permute_dims(x), dh), R.matmul(R.permute_dims(d), h))
            new_w = R.subtract(w, R.multiply(R.const(0.1, "float32"), dw))
            R.output(loss, new_w)
        return (loss, new_w)
"""


def test_tied_weights_are_updated_in_place_after_all_their_readers():
    plan, rest = planned(from_source(TIED), "step")
    verify_plan(plan, *rest, deep=True)
    assert copies(plan) == []


SUMMED = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((64, 96), "float32"), w: R.Tensor((96, 96), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.matmul(y, w)
            bias = R.sum(y, axis=[0])
            product = R.matmul(R.permute_dims(y), z)
            R.output(bias, product)
        return (bias, product)
"""


def test_a_sum_over_much_is_made_while_that_is_in_the_cache():
    plan, _ = planned(from_source(SUMMED), "main")
    assert [s.split("_")[0] for s in plan.steps] == ["matmul", "sum", "matmul", "fused"]


READER_LAST = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def step(x: R.Tensor((32, 48), "float32"), w: R.Tensor((48, 64), "float32"), g: R.Tensor((48, 64), "float32")):
        R.func_attr({"donate": (1,)})
        with R.dataflow():
            new_w = R.subtract(w, g)
            y = R.matmul(x, w)
            R.output(new_w, y)
        return (y, new_w)
"""


def test_a_later_reader_of_the_old_value_comes_before_the_update():
    plan, rest = planned(from_source(READER_LAST), "step")
    verify_plan(plan, *rest, deep=True)
    assert copies(plan) == []
    assert plan.steps[-1].startswith("subtract_in_place")


NEW_THEN_OLD = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def step(x: R.Tensor((32, 48), "float32"), w: R.Tensor((48, 64), "float32"), g: R.Tensor((48, 64), "float32")):
        R.func_attr({"donate": (1,)})
        with R.dataflow():
            new_w = R.subtract(w, g)
            total = R.sum(R.matmul(x, new_w))
            scaled = R.exp(R.multiply(w, total))
            y = R.matmul(x, scaled)
            R.output(new_w, y)
        return (y, new_w)
"""


def test_an_update_that_a_reader_of_the_old_value_needs_is_copied_at_the_end():
    plan, rest = planned(from_source(NEW_THEN_OLD), "step")
    verify_plan(plan, *rest, deep=True)
    assert copies(plan) == ["copy_float32_48x64"]


@pytest.mark.parametrize("count", [1, 7, 1 << 20, (1 << 20) + 5])
def test_the_verifier_knows_a_copy(count):
    """In one loop or in blocks; one that leaves out elements, or takes others, is none."""
    steps, value = Steps([], [], [], [], {}), Value("v", (count,), "float32")
    kernel = steps.kernels[steps.add_copy(value, value).kernel]
    assert _is_copy(kernel)
    x, y = kernel.params
    wider = {b: Buffer(b.name, (count + 1,), b.dtype) for b in (x, y)}
    assert not _is_copy(PrimFunc("less", tuple(wider.values()), Substitute(buffers=wider).stmt(kernel.body)))
    assert not _is_copy(PrimFunc("back", (y, x), kernel.body))
    if count > 1:
        loops = [n for n in walk(kernel.body) if isinstance(n, For)]
        moved = Substitute({loops[-1].var: loops[-1].var + 1}).stmt(loops[-1].body)
        body = substitute_loop(kernel.body, loops[-1], moved)
        assert not _is_copy(PrimFunc("moved", (x, y), body))


def substitute_loop(body, inner, statement):
    """The loops with another statement inside."""
    if body is inner:
        return For(inner.var, inner.extent, statement, inner.kind)
    return For(body.var, body.extent, substitute_loop(body.body, inner, statement), body.kind)


CHAIN = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            a = R.nn.softmax(R.matmul(x, w))
            b = R.nn.softmax(R.multiply(a, x))
            c = R.nn.softmax(R.add(b, x))
            y = R.matmul(w, c)
            R.output(y)
        return y
"""


def test_temporaries_take_the_place_of_those_that_die():
    one = 64 * 64 * 4
    together, rest = planned(from_source(CHAIN), "main")
    verify_plan(together, *rest, deep=True)
    apart, rest = planned(from_source(CHAIN), "main", in_place=False)
    verify_plan(apart, *rest, deep=True)
    assert together.arena_bytes < apart.arena_bytes and together.arena_bytes >= one
    assert any("_in_place_" in s for s in together.steps) and not any("_in_place_" in s for s in apart.steps)


def test_poison_overwrites_no_live_value():
    plan, rest = planned(mlp_trainer_module(SIZES, 32), poison=True)
    verify_plan(plan, *rest, deep=True)
    assert any(s.startswith("poison") for s in plan.steps)


# -- offsets


def overlap(live) -> bool:
    blocks = list(live)
    for k, a in enumerate(blocks):
        for b in blocks[:k]:
            together = live[a][0] <= live[b][1] and live[b][0] <= live[a][1]
            apart = a.offset + aligned(a.nbytes) <= b.offset or b.offset + aligned(b.nbytes) <= a.offset
            if together and not apart:
                return True
    return False


def test_offsets_of_random_intervals():
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(60):
        live = {}
        for _ in range(int(rng.integers(0, 60))):
            first = int(rng.integers(0, 60))
            size = int(rng.choice([0, 4, 64, 1000, 4096, 100_000]))
            live[Block("arena", size)] = (first, first + int(rng.geometric(0.2)))
        size = assign_offsets(live)
        assert not overlap(live)
        assert size == max((b.offset + aligned(b.nbytes) for b in live), default=0)
        assert all(b.offset % 64 == 0 for b in live)
        ratios.append(size / max(1, live_bytes(live)))
    assert min(r for r in ratios if r) >= 1 and np.mean(ratios) < 1.05 and max(ratios) < 1.3


# -- orders


def _alive(values: list[Value], done: list[Step], left: list[Step]) -> set[Value]:
    """The values in memory of their own that have been computed, and that somebody still reads, or nobody ever does."""
    made = [v for v in values if v.block is None and v.step in done]
    return {v for v in made if any(v in s.inputs for s in left) or not any(v in s.inputs for s in done)}


def test_the_second_order_takes_what_leaves_the_fewest_bytes_alive():
    """Graphs drawn at random: at each point it is the step, of those that may run, that a search of all would take."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        values = [Value("x", (int(rng.integers(1, 99)),), "float32", Block("input", 0)) for _ in range(3)]
        steps: list[Step] = []
        for k in range(int(rng.integers(1, 20))):
            inputs = [values[i] for i in rng.integers(0, len(values), int(rng.integers(1, 4)))]
            output = Value(f"v{k}", (int(rng.integers(1, 99)),), "float32")
            output.step = Step("kernel", inputs, [output])
            steps.append(output.step)
            values.append(output)
        before, found = data_dependences(steps), []
        while len(found) < len(steps):
            left = [s for s in steps if s not in found]
            ready = [s for s in left if before[s] <= set(found)]
            alive = [_alive(values, [*found, s], [other for other in left if other is not s]) for s in ready]
            sizes = [sum(v.nbytes for v in each) for each in alive]
            found.append(ready[sizes.index(min(sizes))])
        assert orders(steps, before, ())[1] == found


# -- what the verifier refuses


@pytest.fixture(scope="module")
def step():
    return planned(mlp_trainer_module(SIZES, 32, Adam(0.01)))


def changed(plan: Plan, statements, sources=None) -> Plan:
    host = PrimFunc(plan.host.name, plan.host.params, seq(*statements), plan.host.attrs)
    return replace(plan, host=host, sources=list(plan.sources if sources is None else sources))


def moved(statement, find, buffer):
    """The call with each buffer for which ``find`` holds replaced by ``buffer`` of it."""
    if not isinstance(statement, KernelCall):
        return statement
    return KernelCall(statement.name, tuple(buffer(b) if find(b) else b for b in statement.buffers))


def test_every_step_is_needed(step):
    plan, rest = step
    statements = list(plan.host.body.stmts)
    for k in range(len(statements)):
        broken = changed(plan, statements[:k] + statements[k + 1 :], plan.sources[:k] + plan.sources[k + 1 :])
        with pytest.raises(PlanError):
            verify_plan(broken, *rest)


def test_a_value_is_computed_before_it_is_read(step):
    """Each step that writes to the arena, moved to the end."""
    plan, rest = step
    statements, sources, moved_steps = list(plan.host.body.stmts), list(plan.sources), 0
    for k, statement in enumerate(statements):
        if isinstance(statement, KernelCall) and statement.buffers[-1].scope == "arena":
            order = [*range(k), *range(k + 1, len(statements)), k]
            moved_steps += 1
            with pytest.raises(PlanError):
                verify_plan(changed(plan, [statements[i] for i in order], [sources[i] for i in order]), *rest)
    assert moved_steps > 5


def test_every_arena_buffer_has_its_place(step):
    """Each use of the arena, moved elsewhere, out of it, or off its alignment."""
    plan, rest = step
    statements = list(plan.host.body.stmts)
    for k, statement in enumerate(statements):
        buffers = getattr(statement, "buffers", ())
        scratch = plan.kernels[statement.name].attrs.get("workspaces", 0) if buffers else 0
        for number, buffer in enumerate(buffers):
            if buffer.scope != "arena":
                continue
            elsewhere = [buffer.offset + 64] if number < len(buffers) - scratch else []  # scratch may lie anywhere free
            for offset in (*elsewhere, plan.arena_bytes, -64, buffer.offset + 4):
                other = replace(buffer, offset=offset)
                one = moved(statement, lambda b, old=buffer: b is old, lambda _, new=other: new)
                with pytest.raises(PlanError):
                    verify_plan(changed(plan, [*statements[:k], one, *statements[k + 1 :]]), *rest)


def test_two_live_values_may_not_overlap(step):
    plan, rest = step
    arena = sorted({p.offset for p in plan.places if p.place == "arena" and p.nbytes >= 4096})
    first, second = arena[0], arena[-1]
    assert first != second
    for a, b in ((first, second), (second, first)):
        statements = [
            moved(s, lambda x, a=a: x.scope == "arena" and x.offset == a, lambda x, b=b: replace(x, offset=b))
            for s in plan.host.body.stmts
        ]
        with pytest.raises(PlanError):
            verify_plan(changed(plan, statements), *rest)


def test_parameters_may_not_be_confused(step):
    plan, rest = step
    w1, w2 = (next(p for p in plan.host.buffers if p.name == n) for n in ("w1", "w2"))
    assert w1.shape == w2.shape
    statements = [moved(s, lambda b: b is w1, lambda _: w2) for s in plan.host.body.stmts]
    with pytest.raises(PlanError):
        verify_plan(changed(plan, statements), *rest)


def test_the_last_check_comes_before_donated_memory_is_overwritten(step):
    plan, rest = step
    statements, sources = list(plan.host.body.stmts), list(plan.sources)
    check = next(k for k, s in enumerate(statements) if isinstance(s, Check))
    update = next(
        k for k, s in enumerate(statements) if isinstance(s, KernelCall) and s.name.startswith("add_in_place")
    )
    assert check < update
    statements.insert(check, statements.pop(update))
    sources.insert(check, sources.pop(update))
    with pytest.raises(PlanError, match="before the last check"):
        verify_plan(changed(plan, statements, sources), *rest)


def test_results_are_where_the_plan_says(step):
    plan, rest = step
    with pytest.raises(PlanError):
        verify_plan(replace(plan, donated={k: i for k, i in plan.donated.items() if k != 1}), *rest)
    swapped = dict(plan.donated)
    swapped[3], swapped[5] = swapped[5], swapped[3]
    with pytest.raises(PlanError):
        verify_plan(replace(plan, donated=swapped), rest[0], rest[1], swapped)


def test_kernels_are_those_of_the_function(step):
    plan, rest = step
    name = next(n for n in plan.kernels if n.startswith("fused_matmul_add_relu"))
    other = next(f for n, f in plan.kernels.items() if n.startswith("collapse_sum_to"))
    with pytest.raises(PlanError):
        verify_plan(replace(plan, kernels={**plan.kernels, name: other}), *rest)


SHIFT = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def step(x: R.Tensor((64, 64), "float32")):
        R.func_attr({"donate": (0,)})
        with R.dataflow():
            s = R.sum(x)
            y = R.add(R.flip(x, 0), R.const(1.0, "float32"))
            R.output(s, y)
        return (s, y)
"""


def test_memory_is_not_shared_where_elements_move(monkeypatch):
    """The planner refuses; when its proof is broken on purpose, the verifier does."""
    from pullback.relax.transform.memory import sharing

    plan, rest = planned(from_source(SHIFT), "step")
    verify_plan(plan, *rest, deep=True)
    assert copies(plan) == ["copy_float32_64x64"]
    monkeypatch.setattr(sharing, "may_share", lambda *_: True)
    plan, rest = planned(from_source(SHIFT), "step")
    with pytest.raises(PlanError, match="reads what it has written"):
        verify_plan(plan, *rest, deep=True)


def test_step_with_and_without_temporaries_in_place_gives_the_same_bits():
    module = mlp_trainer_module(SIZES, 32, Adam(0.01))
    results = []
    for text in ("0", "1"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PULLBACK_POISON", text)
            tensors = step_arguments(module)
            call = pullback.compile(module)["__step"].bind(tensors)
            losses = [call()[0].numpy().copy() for _ in range(3)]
            results.append([*losses, *(t.numpy() for t in tensors)])
    for a, b in zip(*results, strict=True):
        assert a.tobytes() == b.tobytes()
