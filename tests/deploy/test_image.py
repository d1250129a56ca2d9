"""Images for microcontrollers: built by their Makefile, run in an emulator, and compared with Python's trainer.

It takes arm-none-eabi-gcc with newlib, make and qemu-system-arm: see tools.py.
"""

import re
import shutil
import subprocess

import numpy as np
import pytest

import pullback
from pullback import nn, optim
from pullback.deploy.image import FOLDER, batch_of, write_data
from pullback.ir.errors import ArgumentError, ShapeError, UserError
from tests.deploy.tools import need_program

TOOLS = ("arm-none-eabi-gcc", "arm-none-eabi-nm", "arm-none-eabi-objcopy", "make", "qemu-system-arm")


@pytest.fixture(autouse=True, scope="module")
def tools():
    for tool in TOOLS:
        need_program(tool)


LIBRARY = {"memcpy", "memmove", "memset", "memcmp", "strlen", "strcmp"}  # all that a library needs of a C library
BATCH, ROWS, EPOCHS = 16, 1408, 5
RAM = 256 * 1024
CORES = ("cortex-m4", "cortex-m55")


def digits():
    """8 x 8 images of which all values are sixteenths, and their labels, in random order."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    return found.images[order, None].astype("float32") / 16, found.target[order]


def network():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, 10),
    )  # fmt: skip


def trainer_of(net, x):
    return pullback.trainer(net, "cross_entropy", optim.Adam(lr=2e-3), example=x[:BATCH])


def frozen(net, *layers):
    for layer in layers:
        for parameter in net[layer].parameters():
            parameter.requires_grad = False
    return net


@pytest.fixture(scope="module")
def data():
    return digits()


@pytest.fixture(scope="module")
def exported(tmp_path_factory, data):
    """The network for each core, with its data set in flash: sixteenths are float16, labels are bytes."""
    x, y = data
    trainer, found = trainer_of(network(), x), {}
    x, y = x.astype("float16"), y.astype("uint8")
    for core in CORES:
        found[core] = trainer.export(tmp_path_factory.mktemp("image") / core, core, "digits", batch_size=BATCH)
        found[core].write_data((x[:ROWS], y[:ROWS]), (x[ROWS:], y[ROWS:]))
    return found


def make(exported, *arguments, good=True):
    command = ["make", "-s", "-C", str(exported.folder / FOLDER), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0) == good, done.stdout + done.stderr
    return done.stdout + done.stderr


def symbols(exported):
    elf = exported.folder / FOLDER / f"{exported.name}.elf"
    text = subprocess.run(["arm-none-eabi-nm", elf], capture_output=True, text=True, check=True).stdout
    return {words[2]: int(words[0], 16) for words in map(str.split, text.splitlines()) if len(words) == 3}


def numbers(text, pattern):
    return [float(n) for n in re.findall(pattern, text)]


@pytest.mark.parametrize("core", CORES)
def test_it_learns_in_256_kib(core, exported, data):
    """The first losses are Python's, and the rest of the digits is recognized."""
    made, (x, y) = exported[core], data
    output = make(made, "run", f"EPOCHS={EPOCHS}", "LOSSES=20", "RAM=256K")
    losses = numbers(output, r"step \d+: loss ([\d.]+)")
    trainer = trainer_of(network(), x)
    own = [trainer.update(x[i : i + BATCH], y[i : i + BATCH]).item() for i in range(0, 20 * BATCH, BATCH)]
    np.testing.assert_allclose(losses, own, rtol=1e-5)
    assert numbers(output, r"accuracy ([\d.]+)")[0] >= 0.95
    assert f"test: {len(x) - ROWS} rows" in output
    (deepest, stack), found = re.search(r"stack: (\d+) of (\d+) bytes", output).groups(), symbols(made)
    # The linker has put the stack, all that is written and the instance below the end of RAM; there is no heap.
    assert found["image_stack"] == 0x20000000 and found["image_stack_top"] == 0x20000000 + int(stack)
    assert found["image_stack_top"] <= found["image_data"] <= found["image_bss"] < found["image_bss_end"]
    assert found["image_bss_end"] - 0x20000000 <= RAM
    assert "sbrk" not in "".join(found) and "malloc" not in "".join(found)
    assert int(deepest) < int(stack) == made.manifest["memory"]["stack"]
    # An estimate that is not much more than is needed: buffers of a gradient's phases share some of their places.
    assert 2 * int(deepest) > made.manifest["memory"]["stack"]


@pytest.mark.parametrize("core", CORES)
def test_folded_layers_are_in_flash_alone(core, tmp_path, data):
    """Both convolutions: their weights take no memory of the instance, and no copies of them any of the stack."""
    x, y = data
    trainer, found = trainer_of(frozen(network(), 0, 2), x), []
    for folds in (False, True):
        made = trainer.export(tmp_path / f"{folds}", core, "digits", batch_size=BATCH, fold_frozen=folds)
        made.write_data((x[:ROWS].astype("float16"), y[:ROWS].astype("uint8")), None)
        output = make(made, "run", "EPOCHS=1", "LOSSES=10")
        deepest, stack = map(int, re.search(r"stack: (\d+) of (\d+) bytes", output).groups())
        losses = numbers(output, r"step \d+: loss ([\d.]+)")
        found.append((made.instance_bytes, deepest, stack, losses))
    (instance, deepest, stack, losses), folded = found
    weights = sum(np.asarray(trainer.params[f"{k}.{name}"]).nbytes for k in (0, 2) for name in ("weight", "bias"))
    assert folded[0] <= instance - weights and folded[1] < deepest and folded[2] < stack
    np.testing.assert_allclose(folded[3], losses, rtol=1e-5)
    own = [trainer.update(x[i : i + BATCH], y[i : i + BATCH]).item() for i in range(0, 10 * BATCH, BATCH)]
    np.testing.assert_allclose(losses, own, rtol=1e-5)


def test_the_clock_counts_instructions(exported):
    """With one instruction a nanosecond SysTick, of 25 MHz, counts 40 a tick: a step's arithmetic takes so many."""
    output = make(exported["cortex-m55"], "run", "EPOCHS=1", "QEMU_FLAGS=-icount shift=0")
    (ticks,) = numbers(output, r"a step: (\d+) ticks")
    assert 1_000_000 < 40 * ticks < 2_000_000


def test_what_does_not_fit_is_no_image(exported):
    output = make(exported["cortex-m4"], "RAM=128K", good=False)
    assert "stack, data and the instance need more RAM than there is" in output


@pytest.mark.parametrize("bytes", [512, 8192])
@pytest.mark.parametrize("core", CORES)
def test_a_stack_that_is_too_small_faults(core, bytes, exported):
    """Nothing below it is overwritten or read: there is a limit that the core knows, or memory that is protected."""
    output = make(exported[core], "run", f"STACK={bytes}", good=False)
    assert "a fault: the stack is too small" in output


SIZES = """
#include <string.h>

#include "../digits.h"
#include "board.h"

static _Alignas(64) unsigned char memory[DIGITS_INSTANCE_BYTES];
static unsigned char checkpoint[50000];
static size_t length;
static volatile unsigned given = 7; /* start.c copies it to RAM */

static int append(void *context, const void *bytes, size_t count)
{
    (void)context;
    if (count > sizeof checkpoint - length)
        return 1;
    memcpy(checkpoint + length, bytes, count);
    length += count;
    return 0;
}

static int read_back(void *context, int64_t offset, void *bytes, size_t count)
{
    (void)context;
    memcpy(bytes, checkpoint + offset, count);
    return 0;
}

int main(void)
{
    digits *self;
    if (given != 7 || length != 0)
        return 7;
    if (digits_bytes(1) != sizeof memory)
        return 1;
    if (digits_init(memory, sizeof memory - 1, 1, &self) != DIGITS_ERROR_ARGUMENT)
        return 2;
    if (digits_init(memory, sizeof memory, 1, &self) != DIGITS_OK)
        return 3;
    if (digits_write(self, append, NULL, NULL) != DIGITS_OK)
        return 4;
    if (digits_read(self, read_back, NULL, (int64_t)length) != DIGITS_OK)
        return 5;
    checkpoint[length / 2] ^= 1;
    if (digits_read(self, read_back, NULL, (int64_t)length) != DIGITS_ERROR_CHECKPOINT)
        return 6;
    image_write("as large as it says\\n");
    return 0;
}
"""


@pytest.mark.parametrize("core", CORES)
def test_an_instance_is_as_large_as_the_header_says(core, exported):
    """Neither more nor less; and all of its functions find room on the stack."""
    made = exported[core]
    (made.folder / FOLDER / "sizes.c").write_text(SIZES)
    assert "as large as it says" in make(made, "run", "MAIN=sizes.c")
    assert made.instance_bytes == made.manifest["memory"]["instance"]
    assert f"#define DIGITS_INSTANCE_BYTES {made.instance_bytes} " in (made.folder / "digits.h").read_text()


@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m7", "cortex-m55"])
def test_a_library_needs_little_of_a_c_library(core, tmp_path):
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    x = np.zeros((4, 6), "float32")
    made = trainer_of(net, x).export(tmp_path / core, core, "small", batch_size=4)
    listing = subprocess.run(
        ["arm-none-eabi-nm", "-A", made.folder / "libsmall.a"], capture_output=True, text=True, check=True
    ).stdout
    kinds = [line.split()[-2:] for line in listing.splitlines()]
    needed = {name for kind, name in kinds if kind == "U"} - {name for kind, name in kinds if kind in "TDBR"}
    assert not {n for n in needed if not n.startswith("__aeabi_")} - LIBRARY
    assert not [name for kind, name in kinds if kind in "DdBbC"], "there is memory that is no instance's"
    assert not {"small.hpp", "example/main.c", "image/data.c"} & set(made.manifest["files"])
    assert set(made.manifest["functions"][core[7:]]) == {"step", "predict_one", "evaluate_one"}
    output = make(made, "run")  # on the numbers that every image has until it gets its own
    losses = numbers(output, r"epoch \d+: loss ([\d.]+)")
    assert len(losses) == 8 and losses[-1] < losses[0]


FROZEN = """
#include "../digits.h"
#include "board.h"
#include "data.h"

static _Alignas(64) unsigned char memory[DIGITS_INSTANCE_BYTES];
static float before[FROZEN], after[FROZEN];

int main(void)
{
    digits *self;
    digits_run_options options = {.steps = 5};
    int32_t number;
    if (digits_init(memory, sizeof memory, 1, &self) != DIGITS_OK)
        return 1;
    number = digits_find(self, "0.weight");
    if (digits_get(self, number, before, sizeof before) != DIGITS_OK)
        return 2;
    if (digits_run(self, image_train.columns, image_train.rows, &options) != DIGITS_OK)
        return 3;
    if (digits_get(self, number, after, sizeof after) != DIGITS_OK)
        return 4;
    for (int i = 0; i < FROZEN; i++)
        if (before[i] != after[i])
            return 5;
    image_write("as it was\\n");
    return 0;
}
"""


def test_frozen_layers_take_neither_gradients_nor_states(exported, data, tmp_path):
    """Adam keeps two numbers for each parameter that is trained; a gradient is computed down to the first of these."""
    x, y = data
    whole, memory = exported["cortex-m4"], exported["cortex-m4"].manifest["memory"]
    trainers = {n: trainer_of(frozen(network(), *layers), x) for n, layers in {"one": (0,), "two": (0, 2)}.items()}
    made = {n: t.export(tmp_path / n, "cortex-m4", "digits", batch_size=BATCH) for n, t in trainers.items()}
    one, two = (made[n].manifest["memory"] for n in ("one", "two"))
    conv = [8 * 9 + 8, 16 * 8 * 9 + 16]  # parameters
    assert one["optimizer"] == memory["optimizer"] - 2 * 4 * conv[0]
    assert two["optimizer"] == memory["optimizer"] - 2 * 4 * sum(conv)
    assert one["parameters"] == two["parameters"] == memory["parameters"]
    assert two["arena"] < one["arena"] < memory["arena"]
    assert (
        two["arena"] <= memory["arena"] - 2 * BATCH * 16 * 4 * 4 * 4
    )  # neither what is saved for it, nor its gradient
    assert made["two"].instance_bytes < made["one"].instance_bytes < whole.instance_bytes
    made["one"].write_data((x[:80].astype("float16"), y[:80].astype("uint8")))
    (made["one"].folder / FOLDER / "frozen.c").write_text(FROZEN)
    assert "as it was" in make(made["one"], "run", "MAIN=frozen.c", "CFLAGS=-DFROZEN=72")
    losses = numbers(make(made["one"], "run", "EPOCHS=1"), r"step \d+: loss ([\d.]+)")
    own = [trainers["one"].update(x[i : i + BATCH], y[i : i + BATCH]).item() for i in range(0, 80, BATCH)]
    np.testing.assert_allclose(losses, own, rtol=1e-5)


def extremes(dtype):
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.array([False, True])
    if kind.kind == "f":
        most = np.finfo(kind).max
        return np.array([most, -most, np.inf, -np.inf, 0.1, -0.0, np.finfo(kind).smallest_subnormal], kind)
    return np.array([np.iinfo(kind).min, np.iinfo(kind).max, 1], kind)


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"],
)
def test_data_of_every_dtype_are_the_same_bytes_in_flash(dtype, exported, tmp_path):
    made, values = exported["cortex-m4"], extremes(dtype)
    x = np.resize(values, (3, 1, 8, 8))
    write_data(tmp_path / "data.c", "digits", batch_of(made.manifest), (x, np.arange(3)), None)
    command = ["arm-none-eabi-gcc", "-c", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fdata-sections"]
    command += ["-I", made.folder / FOLDER, "data.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    copied = ["arm-none-eabi-objcopy", "-O", "binary", "-j", ".rodata.train0", "data.o", "train0"]
    subprocess.run(copied, cwd=tmp_path, check=True)
    assert (tmp_path / "train0").read_bytes() == x.tobytes()


def test_data_that_do_not_fit(exported, data):
    made, (x, y) = exported["cortex-m4"], data
    with pytest.raises(ShapeError, match=r"train: input must have the shape \(rows, 1, 8, 8\), got \(5, 8, 8\)"):
        made.write_data((x[:5, 0], y[:5]))
    with pytest.raises(ShapeError, match=r"test: all arrays must have the same number of rows, got \[4, 5\]"):
        made.write_data((x[:5], y[:5]), (x[:5], y[:4]))
    with pytest.raises(ArgumentError, match="train has 1 arrays; the library takes 2: input, targets"):
        made.write_data((x[:5],))


def test_without_the_compiler_it_is_said_which(monkeypatch, tmp_path):
    trainer = trainer_of(nn.Sequential(nn.Linear(6, 3)), np.zeros((4, 6), "float32"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="a library for cortex-m4 needs arm-none-eabi-gcc") as raised:
        trainer.export(tmp_path / "none", "cortex-m4", "small", batch_size=4)
    assert "gcc-arm-none-eabi" in str(raised.value.hint)
    assert not (tmp_path / "none").exists()


def test_only_microcontrollers_have_images(tmp_path):
    trainer = trainer_of(nn.Sequential(nn.Linear(6, 3)), np.zeros((4, 6), "float32"))
    made = trainer.export(tmp_path / "host", name="small", batch_size=4, functions=("predict_one",))
    assert not (made.folder / FOLDER).exists()
    with pytest.raises(UserError, match="a library for host has no image"):
        made.write_data((np.zeros((4, 6), "float32"), np.zeros(4, "int64")))
