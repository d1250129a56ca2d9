"""LLVM IR text to object code: in this process, or as the program of another one, which reads texts and writes objects.

As a program (see ``objects.py``) it imports nothing but llvmlite, so it starts in a tenth of a second. It answers each
request, a line of JSON {"triple", "options", "strength_reduction", "length"} and the text, by a line {"ok", "length"}
and the object code, or LLVM's message. It ends when its input does, or after a while without requests.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
from collections.abc import Iterator
from typing import Any

import llvmlite.binding as llvm

IDLE_SECONDS = 20.0


@functools.cache
def initialize() -> None:
    """Load all of LLVM's targets, once."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


def target_machine(triple: str, options: dict[str, Any]) -> llvm.TargetMachine:
    """LLVM's machine; ``options`` are those of ``create_target_machine``."""
    initialize()
    return llvm.Target.from_triple(triple).create_target_machine(**options)


def optimized(ir_text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """The text as a module, after SROA and the simplification of control flow; a RuntimeError when it is malformed."""
    module = llvm.parse_assembly(ir_text)
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return module


@contextlib.contextmanager
def without_strength_reduction() -> Iterator[None]:
    """Inside, LLVM's code generator makes no variables of addresses that change in loops, which takes two fifths of its
    time. It is an option of all of LLVM in this process, which others may use too: so it is set back."""
    llvm.set_option("", "-disable-lsr=true")
    try:
        yield
    finally:
        llvm.set_option("", "-disable-lsr=false")


def object_code(ir_text: str, machine: llvm.TargetMachine, strength_reduction: bool) -> bytes:
    """The text as object code; a RuntimeError when it is malformed."""
    module = optimized(ir_text, machine)
    with contextlib.nullcontext() if strength_reduction else without_strength_reduction():
        return machine.emit_object(module)


def serve(requests: int, answers: int) -> None:
    """Answer the requests that come through a pipe until there are no more."""
    with contextlib.suppress(BrokenPipeError, EOFError):
        while select.select([requests], [], [], IDLE_SECONDS)[0]:
            request, text = receive(requests)
            try:
                machine = target_machine(request["triple"], request["options"])
                ok, answer = True, object_code(text.decode(), machine, request["strength_reduction"])
            except RuntimeError as error:
                ok, answer = False, str(error).encode()
            send(answers, {"ok": ok}, answer)


def send(pipe: int, header: dict[str, Any], content: bytes) -> None:
    """Write a line of JSON and the content, whose length it tells."""
    data = memoryview(json.dumps({**header, "length": len(content)}).encode() + b"\n" + content)
    while data:
        data = data[os.write(pipe, data) :]


def receive(pipe: int) -> tuple[dict[str, Any], bytes]:
    """The inverse of :func:`send`; an EOFError when the other side is gone."""
    line = bytearray()
    while not line.endswith(b"\n"):
        line += _some(pipe, 1)
    header = json.loads(line)
    content = bytearray()
    while len(content) < header["length"]:
        content += _some(pipe, header["length"] - len(content))
    return header, bytes(content)


def _some(pipe: int, most: int) -> bytes:
    data = os.read(pipe, most)
    if not data:
        raise EOFError("the other process has ended")
    return data


def go_first() -> None:
    """Have the system end this process, and not the one that it works for, when memory does; no dump is written."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that this one works for
    go_first()
    serve(0, 1)
