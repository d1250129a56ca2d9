"""Many random graphs or networks: ``python -m tests.properties graphs --count 10000``. Prints each seed that fails.

Networks are compared with PyTorch too, where it is installed.
"""

from __future__ import annotations

import argparse
import time
import traceback

from tests.properties.checks import check_graph, check_large_graph, check_network, installed_torch

CHECKS = {"graphs": check_graph, "large": check_large_graph, "networks": check_network}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=CHECKS)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    check, torch = CHECKS[arguments.kind], installed_torch()
    start, failed = time.monotonic(), []
    for done, seed in enumerate(range(arguments.first, arguments.first + arguments.count), 1):
        try:
            check(seed, torch)
        except Exception:
            failed.append(seed)
            print(f"{arguments.kind}, {seed}:\n{traceback.format_exc()}", flush=True)
        if done % 100 == 0:
            print(f"{done} {arguments.kind} in {time.monotonic() - start:.0f} s, {len(failed)} failed", flush=True)
    print(f"failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
