"""Many random graphs: ``python -m tests.properties --count 10000 --first 0``. Prints each seed that fails."""

from __future__ import annotations

import argparse
import time
import traceback

from tests.properties.checks import check_graph


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    start, failed = time.monotonic(), []
    for done, seed in enumerate(range(arguments.first, arguments.first + arguments.count), 1):
        try:
            check_graph(seed)
        except Exception:
            failed.append(seed)
            print(f"graph {seed}:\n{traceback.format_exc()}", flush=True)
        if done % 100 == 0:
            print(f"{done} graphs in {time.monotonic() - start:.0f} s, {len(failed)} failed", flush=True)
    print(f"failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
