"""Command lines and environment variables: a message and an exit code, never a traceback or a signal."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from tests.hostile.oracle import Finding

VARIABLES = {
    "PULLBACK_NUM_THREADS": ["many", "0", "-1", "1e3", "99999999999999999999", " 2 ", "", "2\n", "٣"],
    "PULLBACK_CACHE": ["0", "off", "yes", "", "\udcff"],
    "PULLBACK_CACHE_DIR": ["", "/dev/null", "/proc/1/x", "relative", "~", "x" * 5000, "/dev/full"],
    "PULLBACK_DEBUG": ["1", "9", "-1", "x", ""],
    "PULLBACK_POISON": ["1", "x"],
    "PULLBACK_VERIFY": ["1", "x"],
    "PULLBACK_TUNED": ["0", "x"],
    "PULLBACK_WITHOUT": ["", "everything", "contraction,winograd"],
    "PULLBACK_DATA": ["", "/nowhere", "/dev/null"],
    "XDG_CACHE_HOME": ["", "relative", "/dev/null"],
    "HOME": ["", "/nowhere", "relative"],
    "COLUMNS": ["0", "-1", "x"],
    "TERM": ["", "x"],
}
FILES = {
    "right.py": "from tests.errors.models import linear\n",
    "empty.py": "",
    "syntax.py": "def f(:\n",
    "raises.py": "raise KeyError('x')\n",
    "exits.py": "import sys\nsys.exit(3)\n",
    "imports.py": "import nothing_of_that_name\n",
    "deep.py": "x = " + "(" * 500 + "1" + ")" * 500 + "\n",
    "several.py": "from tests.errors.models import linear, counting\n",
    "number.py": "module = 7\n",
}
RUN = "from tests.errors.models import linear_trainer, X, Y; print(float(linear_trainer().update(X, Y)))"


def case(r: random.Random, folder: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PULLBACK")} | {"PULLBACK_OFFLINE": "1"}
    environment["PULLBACK_CACHE_DIR"] = str(folder / "cache")
    for name in r.sample(list(VARIABLES), r.choice([0, 1, 1, 2])):
        environment[name] = r.choice(VARIABLES[name])
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "noise.py").write_bytes(bytes(r.randrange(256) for _ in range(300)))
    file = str(folder / r.choice([*FILES, "noise.py", "missing.py", "."]))
    options = [
        ["--name", "linear"],
        ["--name", ""],
        ["--function", "x"],
        ["--memory"],
        ["--size", "n=1"],
        ["--size", "n=x"],
        ["--nothing"],
        ["-1"],
    ]
    line = r.choice(
        [
            ["show", file],
            ["opt", file],
            ["opt", file, "--passes", "Simplify, Gradient('main')"],
            ["opt", file, "--after", "planned"],
            ["tune", file, "--rounds", "1"],
            ["ops", "--summary"],
            [],
            ["nothing"],
            ["demo", "--epochs", "0"],
            ["demo", "--threads", "x"],
            ["train", file],
            ["train", f"{file}:linear", "--set", "x=1"],
            ["info"],
            ["cache"],
            ["cache", "clear", "--yes"],
            ["tune", "--reset"],
            ["--help"],
        ]
    )
    line = [*line, *(r.choice(options) if r.random() < 0.4 and line else [])]
    is_program = r.random() < 0.3
    command = [sys.executable, "-c", RUN] if is_program else [sys.executable, "-m", "pullback", *line]
    root = Path(__file__).parents[2]
    environment["PYTHONPATH"] = str(root)
    found = subprocess.run(command, capture_output=True, cwd=folder, env=environment, timeout=300)
    changed = {k: environment[k][:40] for k in VARIABLES if k in environment and environment[k] != os.environ.get(k)}
    what = f"{' '.join(command[1:])[:200]} with {changed}"
    errors = found.stderr.decode(errors="replace")
    if found.returncode < 0:
        raise Finding(f"{what}: ended by signal {-found.returncode}: {errors[-300:]}")
    is_ours = is_program and "\npullback.ir.errors." in errors  # which ends a program with the message
    if "Traceback" in errors and not is_ours:
        raise Finding(f"{what}: a traceback: {errors.strip().splitlines()[-1][:300]}")
