"""docs/distributed.md: its commands run on its files, and its options are those of the command."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from safetensors.numpy import load_file

from pullback.cli import app
from pullback.command.mpirun import OPEN_MPI, Launcher
from tests.docs.blocks import ROOT
from tests.launchers import environment, installed

PAGE = (ROOT / "docs/distributed.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def run(command: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=environment(**more), capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def launcher() -> Launcher:
    return installed()


def test_its_commands_run(tmp_path: Path, launcher: Launcher) -> None:
    for text in [*blocks("python"), *blocks("toml")]:
        (tmp_path / text.split()[1]).write_text(text)  # each begins with its name
    lines = [line for text in blocks("sh") for line in text.splitlines() if not line.startswith("pip ")]
    assert len(lines) == 5
    trained = []
    for line in lines:
        words = shlex.split(line)
        words[words.index("python")] = sys.executable
        if words[0] == "mpiexec":
            allowed = ["--allow-run-as-root", "--oversubscribe"] if launcher.family == OPEN_MPI else []
            words = [str(launcher.program), *allowed, *words[1:]]
        elif "--ranks" in words:
            words += ["--mpirun", str(launcher.program)]
        done = run(words, tmp_path)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        if "train.py" in line:
            assert f"trained by {2 if 'mpiexec' in line else 1} ranks" in done.stdout
            trained.append(load_file(tmp_path / "trained.safetensors"))
    for name, value in trained[0].items():
        assert trained[1][name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    lengths = {p.parent.name: len(p.read_text().splitlines()) for p in tmp_path.glob("runs/*/history.csv")}
    assert lengths == {"digits": 1 + 5, "zero3": 1 + 3}


def test_its_options_are_those_of_the_command() -> None:
    told = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", PAGE)) - {"--mpi"}  # srun's
    command = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    assert told <= {option for parameter in command.params for option in parameter.opts}
    assert {"--ranks", "--restarts", "--min-ranks", "--hosts", "--mpirun", "--continue"} <= told


# ---- examples


def test_the_example_runs_by_itself_and_by_ranks(tmp_path: Path, launcher: Launcher) -> None:
    pytest.importorskip("sklearn")
    done = run([sys.executable, str(EXAMPLES / "distributed.py")], tmp_path)
    assert done.returncode == 0, done.stderr
    alone = re.search(r"test accuracy (\S+) with 1 ranks", done.stdout)
    assert alone is not None and float(alone[1]) > 0.9
    command = [sys.executable, "-m", "pullback", "train", str(EXAMPLES / "distributed.py"), "--ranks", "2"]
    done = run([*command, "--set", "distributed=zero2", "--mpirun", str(launcher.program)], tmp_path)
    assert done.returncode == 0, done.stderr
    last = re.findall(r"val_accuracy (\S+),", done.stdout)[-1]
    assert float(last) == pytest.approx(float(alone[1]), abs=0.01)


SRUN = """#!/bin/sh
# srun, as far as the script uses it: its tasks are ranks.
while [ "${1#-}" != "$1" ]; do echo "$1" >> options; shift; done
unset SLURM_JOB_ID SLURM_STEP_NUM_TASKS
exec "$MPIEXEC" -n "$SLURM_NTASKS" "$@"
"""


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """Programs and variables that a job of Slurm has."""
    python = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
    programs = {"srun": SRUN, "scontrol": '#!/bin/sh\necho "$@" >> requeued\n', "python": python}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for text in [*blocks("python"), *blocks("toml")]:
        (tmp_path / text.split()[1]).write_text(text)
    path = f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"
    return {"PATH": path, "SLURM_NTASKS": "2", "SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_ID": "7"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="the script is one of bash")
def test_the_slurm_script(tmp_path: Path, launcher: Launcher, slurm: dict[str, str]) -> None:
    if launcher.family == OPEN_MPI:
        pytest.skip("Slurm's ranks are started as MPICH's")
    script = ["bash", str(EXAMPLES / "slurm/train.sbatch"), "digits.toml", "--epochs"]
    for epochs in ("1", "2"):
        done = run([*script, epochs], tmp_path, MPIEXEC=str(launcher.program), **slurm)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "options").read_text().split("\n")[:3] == [
        "--mpi=pmi2",
        "--kill-on-bad-exit=1",
        "--cpus-per-task=1",
    ]
    assert len((tmp_path / "runs/digits/history.csv").read_text().splitlines()) == 1 + 2
    assert not (tmp_path / "requeued").exists()


@pytest.mark.skipif(shutil.which("bash") is None, reason="the script is one of bash")
@pytest.mark.parametrize(
    ("code", "count", "requeued"), [(137, 0, True), (137, 5, False), (1, 0, False), (130, 2, True)]
)
def test_slurm_jobs_are_requeued(tmp_path: Path, slurm: dict[str, str], code: int, count: int, requeued: bool) -> None:
    (tmp_path / "srun").write_text(f"#!/bin/sh\nexit {code}\n")
    script = ["bash", str(EXAMPLES / "slurm/train.sbatch"), "digits.toml"]
    done = run(script, tmp_path, **slurm, SLURM_RESTART_COUNT=str(count))
    assert done.returncode == code
    assert (tmp_path / "requeued").exists() == requeued
    if requeued:
        assert (tmp_path / "requeued").read_text() == "requeue 7\n"


def test_the_commands_of_the_mpijob_exist() -> None:
    """What the launcher runs is understood by the command, and is what the page says."""
    text = (EXAMPLES / "kubernetes/mpijob.yaml").read_text(encoding="utf-8")
    lists = [ast.literal_eval(found) for found in re.findall(r"(?:command|args): (\[.*\])", text)]
    assert lists[0][:4] == ["python", "-m", "pullback", "train"]
    command = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    given = command.make_context("train", [*lists[0][4:], *lists[1]]).params
    assert (given["ranks"], given["restarts"], given["min_ranks"], given["go_on"]) == (8, 5, 4, True)
    replicas = int(re.findall(r"replicas: (\d+)", text)[1])
    assert given["ranks"] == replicas * int(re.findall(r"slotsPerWorker: (\d+)", text)[0])
    assert "python -m pullback train … --ranks 8 --restarts 5 --min-ranks 4 --continue" in PAGE


def test_the_mpijob_has_the_fields_of_its_version() -> None:
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((EXAMPLES / "kubernetes/mpijob.yaml").read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    known = {"mpiImplementation", "slotsPerWorker", "sshAuthMountPath", "launcherCreationPolicy", "runPolicy"}
    assert set(job["spec"]) == known | {"mpiReplicaSpecs"} and job["spec"]["mpiImplementation"] == "MPICH"
    assert set(job["spec"]["runPolicy"]) <= {"cleanPodPolicy", "backoffLimit", "activeDeadlineSeconds"}
    for name, specification in job["spec"]["mpiReplicaSpecs"].items():
        assert name in ("Launcher", "Worker") and set(specification) == {"replicas", "restartPolicy", "template"}
        pod = specification["template"]["spec"]
        mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
