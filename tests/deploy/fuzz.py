"""Fuzzing of exported trainers' C runtime with clang's libFuzzer (fuzz.c): its loader of checkpoints, and its calls.

python -m tests.deploy.fuzz --minutes 10
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
TARGETS = ("checkpoints", "calls")
LONGEST = {"checkpoints": 8192, "calls": 2048}  # inputs, in bytes
FLAGS = ("-std=c11", "-D_DEFAULT_SOURCE", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror")
SANITIZERS = ("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")
# What stands in a checkpoint's header; libFuzzer makes others of what comparisons tell it.
WORDS = (
    "__metadata__", "bit_generator", "data_offsets", "dtype", "epochs", "format", "has_uint32", "hyperparameters",
    "inc", "loss", "optimizer", "optimizer_states", "parameters", "PCG64", "pullback-checkpoint", "random", "sha256",
    "shape", "state", "states", "steps", "training", "uinteger", "version", "param.linear.weight", "state.empty",
    "BOOL", "F32", "F64", "I64", "U64", "\\u00e9", "\\ud83d\\ude00", "\\ud800", "\\u0000", '\\"', "{", "}", "[", "]",
    ",", ":", '"', "\\x80", "\\xed\\xa0\\x80", "\\xcd\\xb8", "\\xf4\\x90\\x80\\x80",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How a target's run ended."""

    runs: int
    coverage: int  # edges of the program that were reached
    findings: tuple[Path, ...]  # inputs for which it ended, or took too long
    log: str


def has_libfuzzer(clang: str) -> bool:
    """Whether it links a program with libFuzzer; Apple's clang comes without."""
    code = "int LLVMFuzzerTestOneInput(const char *data, unsigned long size) { return !data && size; }"
    with tempfile.TemporaryDirectory() as folder:
        command = [clang, *SANITIZERS, "-x", "c", "-", "-o", str(Path(folder) / "program")]
        return subprocess.run(command, input=code, text=True, capture_output=True).returncode == 0


def build(target: str, folder: Path, clang: str = "clang") -> Path:
    """The program of one of ``TARGETS``."""
    path = folder / f"fuzz_{target}"
    options = [*FLAGS, *SANITIZERS, f"-DFUZZ_{target.upper()}"]
    subprocess.run([clang, *options, str(HERE / "fuzz.c"), "-o", str(path), "-lm"], check=True)
    return path


def run(program: Path, folder: Path, *options: str, seeds: Sequence[bytes] = ()) -> Outcome:
    """Runs a program with libFuzzer's options, from these inputs on; findings are left in the folder."""
    target = program.name.removeprefix("fuzz_")
    corpus, findings, words = folder / f"{target}_corpus", folder / f"{target}_findings", folder / "words"
    corpus.mkdir(exist_ok=True)
    findings.mkdir(exist_ok=True)
    for number, seed in enumerate(seeds):
        (corpus / f"seed{number}").write_bytes(seed)
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in WORDS))
    arguments = [f"-max_len={LONGEST[target]}", f"-dict={words}", f"-artifact_prefix={findings}/", "-timeout=20"]
    arguments += ["-len_control=0", "-print_final_stats=1", *options]
    done = subprocess.run([str(program), str(corpus), *arguments], capture_output=True, text=True, errors="replace")
    runs = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
    found = tuple(sorted(findings.iterdir()))
    if not runs or bool(done.returncode) != bool(found):
        raise RuntimeError(f"{program.name} ended with status {done.returncode}:\n{done.stderr[-4000:]}")
    coverage = max(map(int, re.findall(r"\bcov: (\d+)", done.stderr)), default=0)
    return Outcome(int(runs[1]), coverage, found, done.stderr)


def _escaped(word: str) -> str:
    """In libFuzzer's dictionaries, which know \\\\, \\" and \\xAB: those of bytes are written in WORDS as they are."""
    return re.sub(r'\\(?!x)|"', r"\\\g<0>", word)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.deploy.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10, help="of all targets together (10)")
    parser.add_argument("--target", choices=TARGETS, action="append", help="one of them (both)")
    parser.add_argument("--folder", type=Path, help="for inputs that reach something new, and findings (a new one)")
    given = parser.parse_args()
    clang = shutil.which("clang")
    if clang is None or not has_libfuzzer(clang):
        what = "clang is not installed" if clang is None else f"{clang} has no libFuzzer"
        print(f"error: {what} (Debian: apt-get install clang)")
        return 2
    folder = given.folder or Path(tempfile.mkdtemp(prefix="fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    targets = given.target or TARGETS
    failed = False
    for target in targets:
        seconds = max(1, round(given.minutes * 60 / len(targets)))
        outcome = run(build(target, folder, clang), folder, f"-max_total_time={seconds}")
        print(f"{target}: {outcome.runs} runs, {outcome.coverage} edges, {len(outcome.findings)} findings", flush=True)
        if outcome.findings:
            failed = True
            print(outcome.log[-6000:], *outcome.findings, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
