"""docs/deploy.md: its files are written and its commands run, in order, in a copy of examples/deploy."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pullback.deploy.targets import PLATFORMS
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```([a-z]+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)  # "```sh (not run …)" is none
NAMED = re.compile(r"(?:#|//|/\*) ([\w./-]+)(?: \*/)?\n")
TOOLS = {"cargo": "cargo", "cmake": "cmake", "pkg-config": "pkg-config", "c++": "c++"}  # commands that may be missing
JNI = """
#include <stdint.h>
#define JNIEXPORT __attribute__((visibility("default")))
#define JNICALL
typedef int32_t jint;
typedef int64_t jlong;
typedef double jdouble;
typedef struct _jobject *jobject;
typedef jobject jclass, jstring;
typedef unsigned char jboolean;
typedef const struct JNINativeInterface *JNIEnv;
struct JNINativeInterface {
    jclass (*FindClass)(JNIEnv *, const char *);
    jint (*ThrowNew)(JNIEnv *, jclass, const char *);
    const char *(*GetStringUTFChars)(JNIEnv *, jstring, jboolean *);
    void (*ReleaseStringUTFChars)(JNIEnv *, jstring, const char *);
    void *(*GetDirectBufferAddress)(JNIEnv *, jobject);
    jlong (*GetDirectBufferCapacity)(JNIEnv *, jobject);
};
"""  # of the NDK's jni.h, as far as the page uses it


def blocks() -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(PAGE)]


def missing(command: str) -> str | None:
    """A tool that a command needs and this machine lacks."""
    if "-m ziglang" in command or re.search(r"--target (?!host)", command):
        return None if importlib.util.find_spec("ziglang") else "ziglang"
    words = set(command.replace("$(", " ").split())
    return next((tool for tool in TOOLS if tool in words and shutil.which(tool) is None), None)


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> tuple[Path, dict[str, str], set[str]]:
    """The folder, what each block of commands has printed, and the tools that some were left out for."""
    folder = Path(shutil.copytree(ROOT / "examples" / "deploy", tmp_path_factory.mktemp("page") / "deploy"))
    shutil.rmtree(folder / "rust" / "target", ignore_errors=True)
    tools = folder.parent / "tools"
    tools.mkdir()
    (tools / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tools / "python").chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "PULLBACK_OFFLINE": "1",
        "PULLBACK_DEBUG": "0",
    }  # fmt: skip
    printed, without = {}, set()
    for kind, text in blocks():
        named = NAMED.match(text)
        if kind == "text":
            continue
        if kind != "sh":
            assert named, f"this block of {kind} names no file:\n{text}"
            (folder / named[1]).write_text(text)
        elif tool := missing(text):
            without.add(tool)
        else:
            command = ["bash", "-euo", "pipefail", "-c", text]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            printed[text] = done.stdout
    return folder, printed, without


def output(ran, part: str) -> str:
    """What the block printed that has these words."""
    _, printed, without = ran
    found = [text for text in printed if part in text]
    if not found and without:
        pytest.skip(f"not run without {', '.join(sorted(without))}")
    assert found, part
    return printed[found[0]]


def steps(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"after (\d+) steps", text)]


@pytest.mark.slow
def test_commands_run(ran):
    assert "loss" in output(ran, "./ten-example")
    assert "written to built" in output(ran, "--checkpoint run")
    assert steps(output(ran, "-o main\n")) == [188, 242, 242, 296]
    assert re.fullmatch(r"\d+ of 131072 bytes, 188 steps done\n", output(ran, "./life"))
    assert json.loads((ran[0] / "dist" / "manifest.json").read_text())["name"] == "digits"


@pytest.mark.slow
@pytest.mark.parametrize("part", ["main-cpp", "cargo", "cmake", "pkg-config", "main-any", "digits-night", "android"])
def test_commands_that_need_more_tools_run(ran, part):
    output(ran, part)


@pytest.mark.slow
def test_checkpoints_go_both_ways(ran):
    text = output(ran, "both_ways.py")
    in_python = int(re.search(r"(\d+) steps", text)[1])
    assert steps(text) == [in_python + 94, in_python + 94 + 54]


@pytest.mark.slow
def test_memory_is_that_of_the_manifest(ran):
    memory = json.loads((ran[0] / "dist" / "manifest.json").read_text())["memory"]
    assert {line.split()[0]: int(line.split()[1]) for line in output(ran, "memory.py").splitlines()} == memory


@pytest.mark.slow
def test_frozen_layers_take_less(ran):
    lines = [line for line in output(ran, "head.py").splitlines() if line.startswith(("whole", "head"))]
    whole, part = (json.loads(line.partition(" ")[2].replace("'", '"')) for line in lines)
    assert part["parameters"] == whole["parameters"]
    assert part["optimizer"] < 0.2 * whole["optimizer"] and part["arena"] < whole["arena"]
    assert part["instance"] < whole["instance"]


@pytest.mark.slow
def test_folded_layers_take_no_memory(ran):
    """Runs of the folded library go on from its own checkpoint, and from one that Python has trained further."""
    whole, folded = (json.loads((ran[0] / name / "manifest.json").read_text()) for name in ("unfolded", "folded"))
    assert whole["folded"] == [] and {"0.1.running_mean", "0.3.weight"} <= set(folded["folded"])
    assert folded["memory"]["states"] == 0 < whole["memory"]["states"]
    assert folded["memory"]["instance"] < whole["memory"]["instance"]
    first, again = (steps(output(ran, part)) for part in ("--fold-frozen", "fold_back.py\n"))
    assert len(first) == len(again) == 2 and first[0] == 0 and again[0] == first[1] + 94
    accuracy = re.findall(r"accuracy ([\d.]+)", output(ran, "fold_back.py\n"))
    assert float(accuracy[-1]) > 0.8


@pytest.mark.slow
def test_federated_clients(ran):
    assert re.findall(r"round \d: (\d) clients", output(ran, "federated.py")) == list("332222")


@pytest.mark.slow
def test_failures_are_told(ran):
    lines = output(ran, "./fails").splitlines()
    assert len(lines) == 2 and "a target is neither a class" in lines[0] and "checkpoint" in lines[1]


@pytest.mark.slow
def test_the_jni_file_compiles(ran, tmp_path):
    (tmp_path / "jni.h").write_text(JNI)
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    command = ["cc", *flags, f"-I{tmp_path}", "-Idist", "digits_jni.c"]
    done = subprocess.run(command, cwd=ran[0], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_units_are_systemds(ran, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    program = tmp_path / "digits-night"
    program.write_text("#!/bin/sh\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    for name in ("digits-night.service", "digits-night.timer"):
        text = (ran[0] / name).read_text().replace("/usr/local/bin/digits-night", str(program))
        (tmp_path / name).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "digits-night.timer"),
               str(tmp_path / "digits-night.service")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "digits-night" not in done.stderr and done.returncode == 0, done.stderr


def test_the_table_of_platforms_is_the_commands():
    rows = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|$", PAGE, re.MULTILINE))
    assert {name: rows.get(name) for name in PLATFORMS} == {p.name: p.about for p in PLATFORMS.values()}


@pytest.mark.slow
def test_the_table_of_statuses_is_the_headers(ran):
    header = (ran[0] / "dist" / "digits.h").read_text()
    statuses = re.findall(r"^ +DIGITS_(OK|ERROR_\w+) = (\d)", header, re.MULTILINE)
    assert re.findall(r"^\| `DIGITS_(\w+)` \| (\d) \|", PAGE, re.MULTILINE) == statuses


@pytest.mark.slow
def test_the_table_of_the_manifest_has_its_keys(ran):
    section = PAGE.partition("### The manifest")[2].partition("\n## ")[0]
    keys = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)))
    assert sorted(keys) == sorted(json.loads((ran[0] / "dist" / "manifest.json").read_text()))


@pytest.mark.slow
def test_its_functions_exist(ran):
    header = (ran[0] / "dist" / "digits.h").read_text()
    prose = BLOCK.sub("", PAGE)
    names = set(re.findall(r"`(digits_[a-z_]+)", prose)) - {"digits_cpp"}
    assert len(names) > 20 and not {name for name in names if not re.search(rf"\b{name}\b", header)}


def test_what_is_not_run_is_marked():
    fences = re.findall(r"^```(.+)$", PAGE, re.MULTILINE)
    assert {f for f in fences if not re.fullmatch("[a-z]+", f)} == {"sh (not run by the tests)"}
    assert PAGE.count("ot run by the tests") >= fences.count("sh (not run by the tests)") + 2
