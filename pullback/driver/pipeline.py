"""The pipeline: from a graph function to kernels and a plan, as one page.

    source       what the user wrote (and what Gradient and SetupTrainer added)
    raised       RaiseOps: legalised ops are ops again
    joined       JoinStep: a trainer module gets ``__step``; InferByConvention: what predicts has its form for that
    inlined      InlineFunctions: one function, no calls of others; InlineCustomGradients; ResolveMatchCast;
                 DeadCodeElimination
    decomposed   KeepCopies: what checkpoints compute again stays apart, until FreeCopies; DecomposeOpsForTraining:
                 composite ops become primitive ones
    simplified   CanonicalizeBindings, SharePrefixes, Simplify, SimplifyLoops, FoldConstant, HoistInvariants, MoveViews,
                 EliminateCommonSubexpr, GatherAgain
    recomputed   Rematerialize: cheap values that only the backward part would keep; RepeatBroadcasts
    fused        FuseOps: groups that are one kernel each
    laid_out     ChooseLayouts: the order of axes in which values between kernels lie in memory
    lowered      LowerToTir: kernels, scheduled for the machine; PackConstants, in libraries with folded layers
    planned      plan_memory: a host function and places for all values; verify_plan

``PULLBACK_DEBUG`` shows the way (``driver/debug.py``), and `python -m pullback opt --after STAGE` prints the module
there (:func:`walk`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pullback.driver import watch
from pullback.driver.debug import show_stage, verify
from pullback.driver.options import Options
from pullback.driver.signature import donated_inputs
from pullback.ir.depth import deep
from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relax.expr import Function
from pullback.relax.struct_info import flat_infos, symbolic_vars
from pullback.relax.transform.add_random_state import refuse_draws_without_state
from pullback.relax.transform.bind_sizes import bind_function_sizes
from pullback.relax.transform.canonicalize_bindings import CanonicalizeBindings
from pullback.relax.transform.checkpoints import FreeCopies, KeepCopies
from pullback.relax.transform.choose_layouts import ChooseLayouts
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.relax.transform.decompose_ops import DecomposeOpsForTraining
from pullback.relax.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from pullback.relax.transform.fold_constant import FoldConstant
from pullback.relax.transform.fuse_ops import FuseOps
from pullback.relax.transform.gather_again import GatherAgain
from pullback.relax.transform.hoist_invariants import HoistInvariants
from pullback.relax.transform.hoist_sums import HoistSums
from pullback.relax.transform.infer_by_convention import InferByConvention
from pullback.relax.transform.inline_custom_gradients import inline_custom_gradients
from pullback.relax.transform.inline_functions import inline_calls, over_regions
from pullback.relax.transform.join_step import JoinStep
from pullback.relax.transform.lower_to_tir import LowerToTir
from pullback.relax.transform.move_views import MoveViews
from pullback.relax.transform.plan_memory import MemoryOptions, Plan, plan_memory
from pullback.relax.transform.raise_ops import RaiseOps
from pullback.relax.transform.rematerialize import Rematerialize
from pullback.relax.transform.repeat_broadcasts import RepeatBroadcasts
from pullback.relax.transform.resolve_match_cast import resolve_match_casts
from pullback.relax.transform.returned_sizes import sizes_as_constants
from pullback.relax.transform.share_prefixes import SharePrefixes
from pullback.relax.transform.simplify import Simplify
from pullback.relax.transform.simplify_loops import SimplifyLoops
from pullback.relax.transform.verify_plan import verify_plan
from pullback.schedule.group import Group, Machine
from pullback.target import Target

Stage = tuple[str, tuple[Pass, ...]]  # its name, and its passes

RAISED: Stage = ("raised", (RaiseOps(),))
JOINED: Stage = ("joined", (JoinStep(), InferByConvention()))


def stages(machine: Machine, groups: dict[str, Group] | None = None) -> tuple[Stage, ...]:
    """The stages that concern one function, once it is inlined."""
    simplified = (
        CanonicalizeBindings(),
        HoistSums(),
        CanonicalizeBindings(),
        SharePrefixes(),
        Simplify(),
        CanonicalizeBindings(),
        SimplifyLoops(),
        FoldConstant(),
        HoistInvariants(),
        SimplifyLoops(),
        MoveViews(),
        EliminateCommonSubexpr(),
        GatherAgain(),
        FreeCopies(),
    )
    return (
        ("decomposed", (KeepCopies(), DecomposeOpsForTraining())),
        ("simplified", simplified),
        ("recomputed", (Rematerialize(), RepeatBroadcasts())),
        ("fused", (FuseOps(machine),)),
        ("laid_out", (ChooseLayouts(machine),)),
        ("lowered", (LowerToTir(machine, groups),)),
    )


class Step(NamedTuple):
    """Where the pipeline is: the stage, the pass that ran last, and the module after it."""

    stage: str
    name: str
    module: IRModule


def prepare(module: IRModule) -> IRModule:
    """The steps that concern the module as a whole."""
    return joined(_after(RAISED, module))


def joined(module: IRModule) -> IRModule:
    """The steps that concern trainer modules: all that the interpreter takes."""
    return _after(JOINED, module)


def _after(stage: Stage, module: IRModule) -> IRModule:
    for step in stage[1]:
        module = step(module)
    return module


def machine_of(target: Target) -> Machine:
    """What schedules know of the target."""
    return Options.of(target).machine(target)


def whole_function(module: IRModule, name: str, sizes: dict[str, int]) -> Function:
    """A function of a prepared module with its symbolic sizes bound, and with what it calls inlined."""
    function: Function = module[name]
    bound = {v: sizes[v.name] for v in symbolic_vars(function.struct_info) if v.name in sizes}
    function = inline_calls(bind_function_sizes(function, bound), module)
    function = inline_custom_gradients(function, module)
    return over_regions(function, module, lambda f: remove_dead_bindings(resolve_match_casts(f)))


@deep
def lower_function(
    module: IRModule,
    name: str,
    sizes: dict[str, int],
    target: Target,
    groups: dict[str, Group] | None = None,
    options: Options | None = None,
) -> tuple[IRModule, dict[int, int]]:
    """From a prepared module to one function as calls of kernels, with its symbolic sizes bound, and what it donates:
    number of the flattened result -> number of the flattened input whose memory it takes over. ``groups`` is filled
    with what each kernel was made of."""
    work = _inlined(module, name, sizes)
    donated = donations(work[name])
    machine = (options or Options.of(target)).machine(target)
    for step in _lowering(work, name, machine, groups):
        work = step.module
    return work, donated


@deep
def _inlined(module: IRModule, name: str, sizes: dict[str, int]) -> IRModule:
    """A module of one function, inlined, and of all kernels."""
    function = whole_function(module, name, sizes)
    refuse_draws_without_state(function)
    kernels = {n: f for n, f in module.items() if not isinstance(f, Function)}
    return IRModule({**kernels, name: function}, module.attrs)


def _lowering(work: IRModule, name: str, machine: Machine, groups: dict[str, Group] | None) -> Iterator[Step]:
    """The steps from an inlined function to calls of kernels."""
    for stage, passes in stages(machine, groups):
        for step in passes:
            watch.look()
            work = show_stage(step.name, step(work), name)
            if stage == "lowered":
                work[name] = sizes_as_constants(work[name])
            yield Step(stage, step.name, work)


def donations(function: Function) -> dict[int, int]:
    """What a function donates: number of the flattened result -> number of the input whose memory it takes over."""
    donated = donated_inputs(function)
    first = len(flat_infos(function.ret_struct_info)) - len(donated)  # the last results are their new values
    return {first + k: i for k, i in enumerate(donated)}


@deep
def plan_function(
    module: IRModule,
    name: str,
    sizes: dict[str, int],
    target: Target,
    options: Options | None = None,
    late: Sequence[Pass] = (),
) -> Plan:
    """Everything from a prepared module to the plan of one function; ``late`` passes see it as calls of kernels."""
    options = options or Options.of(target)
    work, donate = lower_function(module, name, sizes, target, options=options)
    for step in late:
        work = show_stage(step.name, step(work), name)
    plan = _planned(work, name, donate, options)
    for function in (*plan.inner.values(), plan.host):
        show_stage("plan_memory", function, name)
    return plan


@deep
def _planned(work: IRModule, name: str, donated: dict[int, int], options: Options) -> Plan:
    plan = plan_memory(name, work[name], work, donated, MemoryOptions(poison=options.poison))
    verify_plan(plan, work[name], work, donated, deep=verify())
    return plan


def walk(module: IRModule, name: str, sizes: dict[str, int], target: Target) -> Iterator[Step]:
    """All steps of the pipeline for one function, one after another, from the module as its user wrote it.

    ``sizes`` binds its symbolic sizes. The last step's module has the host function under the function's name,
    the host functions of regions, and the kernels as these call them.
    """
    yield Step("source", "", module)
    for stage, passes in (RAISED, JOINED):
        for step in passes:
            module = step(module)
            yield Step(stage, step.name, module)
    work = _inlined(module, name, sizes)
    donated = donations(work[name])
    yield Step("inlined", "InlineFunctions", work)
    options = Options.of(target)
    for reached in _lowering(work, name, options.machine(target), None):
        yield reached
        work = reached.module
    plan = _planned(work, name, donated, options)
    yield Step("planned", "plan_memory", IRModule({name: plan.host, **plan.functions}, work.attrs))
