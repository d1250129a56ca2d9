"""Which values share memory: results take the place of donated inputs, temporaries that of an input that dies.

a = exp(x)          a in the arena
b = tanh(a)         b where a was: a dies here, and the kernel reads each element only where it writes it
w1 = w - b          w1 where w is: donated
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pullback.ir.errors import InternalError
from pullback.relax.transform.memory.offsets import Interval, live_bytes
from pullback.relax.transform.memory.order import After, Before, data_dependences, followers, leads_to
from pullback.relax.transform.memory.values import Block, Step, Steps, Value
from pullback.tir.in_place import may_share


@dataclass
class Results:
    """Where results are written: fresh ones (numbers and values), and the steps that copy at the end."""

    fresh: list[tuple[int, Value]] = field(default_factory=list)
    copies: list[Step] = field(default_factory=list)
    before: Before = field(default_factory=dict)
    after: After = field(default_factory=dict)
    updates: set[Step] = field(default_factory=set)  # those that overwrite donated inputs


class Proofs:
    """Which outputs of kernels may be written over which inputs; asked once for each kernel."""

    def __init__(self, steps: Steps) -> None:
        self.kernels = steps.kernels
        self.known: dict[tuple[str, int, int], bool] = {}

    def may_share(self, step: Step, output: int, source: int) -> bool:
        if step.control is not None:
            return step.control.may_share(output, source)
        if step.boxing:
            return False
        key = (step.kernel, output, source)
        if key not in self.known:
            kernel = self.kernels[step.kernel]
            buffers = kernel.buffers
            # a user's kernel may write an element twice, and read it in between
            proven = kernel.attrs.get("scheduled") and may_share(
                kernel, buffers[source], buffers[len(step.inputs) + output]
            )
            self.known[key] = bool(proven)
        return self.known[key]


def place_results(steps: Steps, donate: Mapping[int, int], proofs: Proofs) -> Results:
    """Decide where every result is written, and what has to wait for what."""
    before = data_dependences(steps.steps)
    results = Results(before=before, after=followers(before))
    taken: set[Value] = set()
    copies: list[tuple[Value, Value]] = []
    for k, value in enumerate(steps.results):
        if k in donate:
            continue
        block = Block("output", value.nbytes, len(results.fresh))
        if value.step is not None and value not in taken:
            value.block = block
            taken.add(value)
            results.fresh.append((k, value))
        else:
            target = Value(f"result_{k}", value.shape, value.dtype, block)
            copies.append((value, target))
            results.fresh.append((k, target))
    copies += _donated(steps, donate, proofs, results, taken)
    for source, target in copies:
        results.copies.append(steps.add_copy(source, target))
    return results


def _donated(
    steps: Steps, donate: Mapping[int, int], proofs: Proofs, results: Results, taken: set[Value]
) -> list[tuple[Value, Value]]:
    """In place where safe; else copied at the end, when old values that are results have been saved."""
    late: list[tuple[Value, Value]] = []
    for k, i in donate.items():
        value, source = steps.results[k], steps.inputs[i]
        if value is source:
            continue
        if value not in taken and _overwrite(value, source, steps, results, proofs):
            value.block = source.block
            taken.add(value)
        else:
            late.append((value, source))
    donated = {steps.inputs[i] for i in donate.values()}
    copies = []
    for value, target in late:
        if value in donated:
            saved = Value("saved", value.shape, value.dtype)
            results.copies.append(steps.add_copy(value, saved))
            value = saved
        copies.append((value, target))
    return copies


def _overwrite(value: Value, source: Value, steps: Steps, results: Results, proofs: Proofs) -> bool:
    """Whether ``value`` may be written over the donated ``source``; then its step waits for all other readers of the
    old value and for all checks."""
    step = value.step
    if step is None or step.may_fail or value.shape != source.shape or source in steps.returned:
        return False
    output, reads = step.outputs.index(value), [i for i, v in enumerate(step.inputs) if v is source]
    if len(reads) > 1 or not all(proofs.may_share(step, output, i) for i in reads):
        return False
    others = {s for s in (*steps.checks, *steps.readers.get(source, ())) if s is not step}
    if leads_to(step, others, results.after):
        return False  # somebody needs both the new value and the old one
    results.before[step] |= others
    for other in others:
        results.after[other].add(step)
    results.updates.add(step)
    for i in reads:
        step.shared[output] = i
    return True


@dataclass(eq=False)
class Assignment:
    """For one order of the steps: the block of each value, when arena blocks live, what kernels do in place."""

    order: list[Step]
    blocks: dict[Value, Block] = field(default_factory=dict)
    live: dict[Block, Interval] = field(default_factory=dict)
    shared: dict[Step, dict[int, int]] = field(default_factory=dict)

    @property
    def peak(self) -> int:
        return live_bytes(self.live)

    def apply(self) -> None:
        for value, block in self.blocks.items():
            value.block = block
        for step, shared in self.shared.items():
            step.shared |= shared


def assign_blocks(order: list[Step], proofs: Proofs, smallest: int) -> Assignment:
    """Blocks for all values without one; values of at least ``smallest`` bytes share where they may."""
    result = Assignment(order)
    last: dict[Value, int] = {}
    for k, step in enumerate(order):
        for value in step.values:
            if value.block is None:
                last[value] = k
    members: dict[Block, list[Value]] = {}
    for value in last:
        result.blocks[value] = Block("arena", value.nbytes)
        members[result.blocks[value]] = [value]
    for k, step in enumerate(order):
        for output, i in _in_place(step, k, last, proofs, smallest):
            source, target = result.blocks[step.inputs[i]], step.outputs[output].block
            result.shared.setdefault(step, {})[output] = i
            if target is None:  # the output joins its input's block, else that block's values move to the output's
                target, source = source, result.blocks[step.outputs[output]]
            for value in members.pop(source):
                result.blocks[value] = target
                members.setdefault(target, []).append(value)
    for k, step in enumerate(order):
        for value in step.values:
            block = result.blocks.get(value)
            if block is not None and block.place == "arena":
                result.live[block] = (result.live.get(block, (k, k))[0], k)
    return result


def _in_place(step: Step, k: int, last: Mapping[Value, int], proofs: Proofs, smallest: int) -> list[tuple[int, int]]:
    """Pairs (output, input) of a step where the output takes the memory of an arena value that dies here."""
    pairs: list[tuple[int, int]] = []
    for o, output in enumerate(step.outputs):
        if o in step.shared or output.nbytes < smallest or (output.block and output.block.place != "output"):
            continue
        for i, source in enumerate(step.inputs):
            dies = last.get(source) == k and step.inputs.count(source) == 1
            free = i not in step.shared.values() and all(i != j for _, j in pairs)
            if dies and free and source.nbytes == output.nbytes and proofs.may_share(step, o, i):
                pairs.append((o, i))
                break
    return pairs


def check_order(order: list[Step], before: Before) -> None:
    """Raise an InternalError unless all steps are there, each after those it waits for."""
    number = {s: k for k, s in enumerate(order)}
    if len(number) != len(before) or any(number[b] > number[s] for s in before for b in before[s]):
        raise InternalError("the order of kernels breaks a dependence")
