"""Compiles one training step and says, as JSON, how much processor time this process had taken before.

    python benchmarks/workers/compile_pullback.py NAME [COUNT]

The pullback that is compiled with is the one that Python finds: another checkout's, for a comparison. The networks are
those of this checkout. The parent process learns from the system how much time this one, and its workers, took.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pullback

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))  # behind pullback, which is imported

from benchmarks.networks import trainer_module
from pullback.relax.training.step import STEP


def main() -> None:
    module = trainer_module(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    before = time.process_time()
    executable = pullback.compile(module, "llvm")
    native = executable.function(STEP).native()
    print(json.dumps({"before": before, "kernels": len(set(native.layout.steps)), "steps": len(native.layout.steps)}))


if __name__ == "__main__":
    main()
