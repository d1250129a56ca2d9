"""``python -m tests.relax.op.op_db [ENTRY…] [--all]``: compares, and prints what was seen."""

from __future__ import annotations

import sys
import time
from collections import Counter

from tests.relax.op.op_db.compare import compare
from tests.relax.op.op_db.database import ENTRIES
from tests.relax.op.op_db.translations import TABLE


def main(arguments: list[str]) -> int:
    everything, names = "--all" in arguments, [a for a in arguments if not a.startswith("-")] or list(TABLE)
    totals, skipped, started = Counter[str](), Counter[str](), time.process_time()
    for name in names:
        report = compare(name, everything)
        counts = {
            "samples": report.compared, "with gradients": report.adjoints, "in machine code": report.native,
            "of integers": report.integers, "skipped": sum(report.skipped.values()), "failed": len(report.failures),
        }  # fmt: skip
        totals.update(counts)
        skipped += report.skipped
        if names != list(TABLE):
            print(f"{name}: {', '.join(f'{n} {what}' for what, n in counts.items())}")
        for failure in report.failures:
            print(f"{name} FAILED: {failure}\n")
    ours = {op for name in names for op in TABLE[name][0]}
    print(f"{len(names)} of {len(ENTRIES)} entries of op_db, which try {len(ours)} ops of ours")
    print(", ".join(f"{n} {what}" for what, n in totals.items()), f"({time.process_time() - started:.0f} s)")
    for reason, n in skipped.most_common():
        print(f"{n:5} skipped: {reason}")
    return 1 if totals["failed"] else 0


sys.exit(main(sys.argv[1:]))
