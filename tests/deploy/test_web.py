"""Trainers in WebAssembly, run by node: what they compute is what Python's trainer does."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
from sklearn.datasets import load_digits

import pullback
from pullback import nn, optim
from pullback.deploy.web import class_name
from tests.cross.targets import zig
from tests.deploy.models import MODELS, batches
from tests.deploy.tools import need_program, need_zig, node

BATCH = 16
ROWS = 200  # 12 batches and 8 rows
ARGUMENT, MEMORY, STATE, STEP, VALUE, BUSY, FILE, CHECKPOINT = 1, 2, 4, 5, 6, 7, 8, 9


def dataset():
    x, y = load_digits(return_X_y=True)
    return (x[:ROWS] / 16).astype(np.float32), y[:ROWS].astype(np.int64)


def make_trainer():
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = optim.Adam(lr=optim.RunTime(2e-3))
    return pullback.trainer(net, "cross_entropy", optimizer, example=dataset()[0], seed=5)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The folder of a library, which holds the data set too, as x.bin and y.bin."""
    need_program("node", "nodejs")
    need_zig()
    folder = tmp_path_factory.mktemp("web") / "dist"
    result = make_trainer().export(folder, target="wasm32", name="digits", batch_size=BATCH)
    assert result.manifest["platform"] == "wasm32"
    x, y = dataset()
    x.tofile(folder / "x.bin")
    y.tofile(folder / "y.bin")
    return folder


@pytest.fixture
def trainer():
    return make_trainer()


PRELUDE = """
import fs from "node:fs";
import { Digits, DigitsError, DigitsWorker, Status } from "./digits.mjs";
const array = (file, Kind) => new Kind(new Uint8Array(fs.readFileSync(file)).buffer);
const x = array("x.bin", Float32Array), y = array("y.bin", BigInt64Array);
const rows = (a, first, count) => a.subarray(first * a.length / 200, (first + count) * a.length / 200);
const refused = async (call) => {
  try { await call(); } catch (error) { return [error.name, error.status, error.message]; }
  return null;
};
const told = (value) => console.log(JSON.stringify(value, (_, v) => ArrayBuffer.isView(v) ? Array.from(v, Number) : v));
"""


def told(exported, script, places=("load",)):
    """What a script tells of an instance, in this thread and in a worker if both are asked for: it is the same."""
    results = []
    for place in places:
        lines = node(PRELUDE + f"const model = await Digits.{place}();" + script + "await model.close();", exported)
        results.append(json.loads(lines))
    assert all(result == results[0] for result in results)
    return results[0]


BOTH = ("load", "worker")


MODULES = ("digits.wasm", "digits.relaxed.wasm")


@pytest.mark.parametrize("file", MODULES)
def test_the_module_imports_nothing_and_shows_its_functions(exported, file):
    script = (
        PRELUDE
        + f"""
    const module = new WebAssembly.Module(fs.readFileSync("{file}"));
    told([WebAssembly.Module.imports(module), WebAssembly.Module.exports(module)]);
    """
    )
    imports, exports = json.loads(node(script, exported))
    assert imports == []
    others = [e for e in exports if not e["name"].startswith("digits_")]
    assert others == [{"name": "memory", "kind": "memory"}]
    assert all(e["kind"] == "function" for e in exports if e not in others)


def test_losses_are_those_of_python(exported, trainer):
    x, y = dataset()
    losses = told(exported, f"""
    const losses = [];
    for (let i = 0; i < {10 * BATCH}; i += {BATCH})
      losses.push(await model.step(rows(x, i, {BATCH}), rows(y, i, {BATCH})));
    told([losses, await model.steps, await model.get("0.weight"), await model.parameters()]);
    """, BOTH)  # fmt: skip
    expected = [float(trainer.update(x[i : i + BATCH], y[i : i + BATCH]).numpy()) for i in range(0, 10 * BATCH, BATCH)]
    np.testing.assert_allclose(losses[0], expected, rtol=1e-5)
    assert losses[1] == 10
    params = {name: value.numpy() for name, value in trainer.params.items()}
    np.testing.assert_allclose(losses[2], params["0.weight"].ravel(), atol=1e-5)
    flat = np.concatenate([p.ravel() for p in params.values()])
    np.testing.assert_allclose(losses[3], flat, atol=1e-5)


def relaxed_multiply_adds(module: bytes) -> int:
    """How often the bytes of the instruction f32x4.relaxed_madd come in a module."""
    return module.count(b"\xfd\x85\x02")


def test_the_class_takes_the_module_that_the_engine_knows(exported):
    """Of each the losses are Python's; only the one has instructions that the other's engines refuse."""
    plain, relaxed = (relaxed_multiply_adds((exported / file).read_bytes()) for file in MODULES)
    assert plain == 0 < relaxed
    found = json.loads(node(PRELUDE + f"""
    const files = process.getBuiltinModule("node:fs/promises"), {{ readFile }} = files, {{ validate }} = WebAssembly;
    const found = [];
    for (const knows of [false, true]) {{
      let file;
      files.readFile = (path) => {{ file = String(path).split("/").at(-1); return readFile(path); }};
      WebAssembly.validate = (bytes) => knows && validate(bytes);
      const model = await Digits.load(), losses = [];
      for (let i = 0; i < {5 * BATCH}; i += {BATCH}) losses.push(model.step(rows(x, i, {BATCH}), rows(y, i, {BATCH})));
      found.push([file, losses]);
    }}
    told(found);
    """, exported))  # fmt: skip
    assert [file for file, _ in found] == list(MODULES)
    trainer, (x, y) = make_trainer(), dataset()
    expected = [float(trainer.update(x[i : i + BATCH], y[i : i + BATCH]).numpy()) for i in range(0, 5 * BATCH, BATCH)]
    for _, losses in found:
        np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_the_c_library_has_the_instructions_that_all_know(exported, tmp_path):
    """A program that links it is one module, in which there is nothing that an engine could refuse."""
    (tmp_path / "main.c").write_text("""
        #include "digits.h"
        unsigned char memory[DIGITS_INSTANCE_BYTES];
        int first(void) { digits *self; return digits_init(memory, sizeof memory, 1, &self); }
    """)
    command = [
        *zig(), "cc", "-target", "wasm32-wasi", "-Os", "-mexec-model=reactor", "-Wl,--export=first", f"-I{exported}",
        "main.c", str(exported / "libdigits.a"), "-o", "main.wasm",
    ]  # fmt: skip
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    program = (tmp_path / "main.wasm").read_bytes()
    assert b"first" in program and relaxed_multiply_adds(program) == 0


def test_runs_are_those_of_fit(exported, trainer):
    """In the same random order; the last rows, fewer than a batch, are no step here, so that there are none."""
    x, y = (a[: 12 * BATCH] for a in dataset())
    result, events, counts, accuracy = told(exported, f"""
    const events = [];
    const data = {{ input: rows(x, 0, {12 * BATCH}), targets: rows(y, 0, {12 * BATCH}) }};
    const result = await model.run({{ ...data, epochs: 3, progress: (event) => events.push(event) }});
    told([result, events, [await model.steps, await model.epochs], await model.evaluate(x, y)]);
    """, BOTH)  # fmt: skip
    trainer.fit(x, y, epochs=3, batch_size=BATCH)
    assert counts == [36, 3] and result["steps"] == 36
    assert [(e["step"], e["epoch"]) for e in events if e["epochEnded"]] == [(12, 1), (24, 2), (36, 3)]
    assert [e["step"] for e in events if not e["epochEnded"]] == list(range(1, 37))
    of_epoch = [e["loss"] for e in events if not e["epochEnded"] and e["step"] > 24]
    assert result["loss"] == events[-1]["loss"] == pytest.approx(np.mean(of_epoch), rel=1e-6)
    expected = trainer.evaluate(*dataset())
    assert accuracy["loss"] == pytest.approx(expected.loss, rel=1e-4)
    assert accuracy["accuracy"] == pytest.approx(expected.accuracy)


def test_predictions_of_any_number_of_rows(exported, trainer):
    x, _ = dataset()
    found = told(
        exported, "told([await model.predict(x), await model.predict(rows(x, 0, 1)), await model.predict([])]);", BOTH
    )
    expected = trainer.predict(x).numpy()
    np.testing.assert_allclose(np.reshape(found[0], (-1, 10)), expected, atol=1e-5)
    np.testing.assert_allclose(found[1], expected[0], atol=1e-5)
    assert found[2] == []


def test_numbers_of_any_kind(exported):
    """Pixels of other dtypes, and labels that are no BigInts, give the same losses."""
    losses = told(exported, """
    const labels = Array.from(rows(y, 0, 16), Number), pixels = rows(x, 0, 16).map((v) => v * 16), losses = [];
    const given = [[pixels, labels], [Uint8Array.from(pixels), Uint8Array.from(labels)],
      [Array.from(pixels), rows(y, 0, 16)],
      [Float64Array.from(pixels), labels.map(BigInt)], [Int16Array.from(pixels), Float32Array.from(labels)]];
    for (const [a, b] of given) { losses.push(await model.step(a, b)); await model.reset(); }
    told(losses);
    """)  # fmt: skip
    assert len(set(losses)) == 1


def test_python_reads_what_is_saved(exported, trainer, tmp_path):
    x, y = dataset()
    kept = told(exported, """
    await model.run({ input: x, targets: y, epochs: 2, shuffle: false });
    await model.setHyperparameter("lr", 0.01);
    fs.writeFileSync("saved.safetensors", await model.save());
    told([await model.get("0.weight"), await model.evaluate(x, y), await model.hyperparameter("lr")]);
    """)  # fmt: skip
    trainer.load(exported / "saved.safetensors")
    assert (trainer.steps, trainer.epochs) == (24, 2)
    assert trainer.hyperparameters["lr"] == pytest.approx(0.01) == pytest.approx(kept[2])
    np.testing.assert_array_equal(np.float32(kept[0]), trainer.params["0.weight"].numpy().ravel())
    expected = trainer.evaluate(x, y)
    assert kept[1]["loss"] == pytest.approx(expected.loss, rel=1e-5)


def test_what_python_has_saved_is_restored(exported, trainer):
    x, y = dataset()
    trainer.fit(x, y, epochs=1, batch_size=BATCH)
    trainer.save(exported / "python.safetensors")
    kept = told(exported, f"""
    await model.restore(fs.readFileSync("python.safetensors"));
    const counts = [await model.steps, await model.epochs];
    told([counts, await model.get("2.weight"), await model.step(rows(x, 0, {BATCH}), rows(y, 0, {BATCH}))]);
    """, BOTH)  # fmt: skip
    assert kept[0] == [trainer.steps, 1]
    np.testing.assert_array_equal(np.float32(kept[1]), trainer.params["2.weight"].numpy().ravel())
    assert kept[2] == pytest.approx(float(trainer.update(x[:BATCH], y[:BATCH]).numpy()), rel=1e-5)


def test_tensors_are_set_and_parameters_added(exported, trainer):
    first, last, flat = told(exported, """
    const bias = (await model.get("0.bias")).fill(0.5);
    await model.set("0.bias", bias);
    const before = await model.parameters();
    await model.addParameters(before.map(() => 2), 0.25);
    const after = await model.parameters();
    await model.setParameters(before);
    told([before, after, await model.parameters()]);
    """, BOTH)  # fmt: skip
    expected = np.concatenate(
        [np.full(32, 0.5) if name == "0.bias" else p.numpy().ravel() for name, p in trainer.params.items()]
    )
    np.testing.assert_array_equal(np.float32(first), np.float32(expected))
    np.testing.assert_allclose(last, expected + 0.5, rtol=1e-6)
    assert flat == first


def test_seeds_make_runs_alike(exported):
    losses = told(exported, """
    const losses = [];
    for (const seed of [7, 7n, 8]) {
      await model.reset();
      await model.seed(seed);
      losses.push((await model.run({ input: x, targets: y, steps: 5 })).loss);
    }
    told(losses);
    """)  # fmt: skip
    assert losses[0] == losses[1] != losses[2]


REFUSED = {
    "model.step(x.subarray(1, 1024), batch[1])": (
        ARGUMENT,
        "input has 1023 elements, which is no number of rows of 64",
    ),
    "model.step(x, batch[1])": (ARGUMENT, "input must have 16 rows of 64 elements, not 200"),
    "model.step(batch[0], rows(y, 0, 15))": (ARGUMENT, "targets must have 16 rows of 1 element, not 15"),
    "model.step(batch[0])": (ARGUMENT, "step takes input, targets, and got 1 of 2"),
    "model.step('pixels', batch[1])": (ARGUMENT, "input must be a typed array or an array of numbers, not the string"),
    "model.step(batch[0], [...labels.slice(1), '3'])": (ARGUMENT, "targets[15] must be a number, not the string 3"),
    "model.step(batch[0], labels.map(() => 10))": (STEP, "a target is neither a class"),
    "model.step(batch[0], labels.map(() => 0.5))": (VALUE, "row 0, element 0 is the float64 0.5, which int64 does not"),
    "model.predict(new Float32Array(65))": (ARGUMENT, "input has 65 elements"),
    "model.evaluate(x, batch[1])": (ARGUMENT, "targets must have 200 rows of 1 element, not 16"),
    "model.run({ input: x })": (ARGUMENT, "run needs targets"),
    "model.run({ input: x, targets: y, epoch: 3 })": (ARGUMENT, "run has no epoch; it takes input, targets, epochs"),
    "model.run({ input: x, targets: y, epochs: 2, steps: 1 })": (ARGUMENT, "one of epochs and steps must be"),
    "model.run({ input: x, targets: y, epochs: 1.5 })": (ARGUMENT, "must be whole numbers, not the number 1.5"),
    "model.run({ input: rows(x, 0, 3), targets: rows(y, 0, 3) })": (ARGUMENT, "a step takes 16 rows"),
    "model.get('0.wight')": (ARGUMENT, "there is no 0.wight; there are 0.weight, 0.bias"),
    "model.set('0.bias', new Float32Array(3))": (ARGUMENT, "0.bias must have 32 elements, not 3"),
    "model.set('0.bias', new Float64Array(32))": (ARGUMENT, "0.bias must be a Float32Array, not Float64Array"),
    "model.setParameters([1, 2])": (ARGUMENT, ""),
    "model.setHyperparameter('lr', -1)": (ARGUMENT, "lr"),
    "model.setHyperparameter('lr', '1')": (ARGUMENT, "a hyperparameter must be a number, not the string 1"),
    "model.hyperparameter('momentum')": (ARGUMENT, "no run-time value"),
    "model.seed(-1)": (ARGUMENT, "a seed must be a whole number ≥ 0, not the number -1"),
    "model.restore('file')": (ARGUMENT, "a checkpoint must be a Uint8Array, not the string file"),
    "model.restore(new Uint8Array(0))": (CHECKPOINT, ""),
    "model.restore(saved.slice(0, -1))": (CHECKPOINT, ""),
    "model.restore(saved.with(saved.length - 1, saved.at(-1) ^ 1))": (CHECKPOINT, "do not match their SHA-256"),
}


@pytest.mark.parametrize("place", BOTH)
def test_bad_input_is_refused_and_changes_nothing(exported, place):
    calls = ", ".join(f"() => {call}" for call in REFUSED)
    results = told(exported, f"""
    const labels = Array.from(rows(y, 0, 16), Number), batch = [rows(x, 0, 16), rows(y, 0, 16)];
    await model.step(...batch);
    const saved = await model.save(), results = [];
    for (const call of [{calls}]) {{
      const error = await refused(call), now = await model.save();
      results.push([error, now.every((byte, i) => byte === saved[i]) && now.length === saved.length]);
    }}
    told([results, await model.step(...batch)]);
    """, [place])  # fmt: skip
    for (call, (status, message)), (error, same) in zip(REFUSED.items(), results[0], strict=True):
        assert error is not None, call
        assert error[:2] == ["DigitsError", status], call
        assert message in error[2], call
        assert same, call
    assert np.isfinite(results[1])


@pytest.mark.parametrize("place", BOTH)
def test_runs_end_by_signals_and_others_get_their_turn(exported, place):
    steps, counted, before, again, busy = told(exported, """
    const controller = new AbortController();
    let [told_, between] = [0, 0];
    const run = model.run({ input: x, targets: y, steps: 1e9, signal: controller.signal, progress: () => told_++ });
    const busy = await refused(() => model.run({ input: x, targets: y, steps: 1 }));
    do {
      between = (await model.predict(rows(x, 0, 1))).length;
      await new Promise((resolve) => setTimeout(resolve, 5));
    } while (told_ < 3);
    controller.abort();
    const { steps } = await run;
    const stopped = await model.run({ input: x, targets: y, steps: 9, signal: AbortSignal.abort() });
    const again = await model.run({ input: x, targets: y, steps: 9 });
    told([steps, await model.steps, [between, stopped.steps], again.steps, busy]);
    """, [place])  # fmt: skip
    assert 0 < steps < 10**9 and counted == steps + 9
    assert before == [10, 0] and again == 9
    assert busy[:2] == ["DigitsError", BUSY]


@pytest.mark.parametrize("place", BOTH)
def test_an_error_in_progress_ends_a_run(exported, place):
    error, steps = told(exported, """
    const progress = () => { throw new RangeError("enough"); };
    const error = await refused(() => model.run({ input: x, targets: y, steps: 1e9, progress }));
    told([error, (await model.run({ input: x, targets: y, steps: 3 })).steps]);
    """, [place])  # fmt: skip
    assert error == ["RangeError", None, "enough"]
    assert steps == 3


@pytest.mark.parametrize("place", BOTH)
def test_a_closed_instance(exported, place):
    results = told(exported, """
    const endless = refused(() => model.run({ input: x, targets: y, steps: 1e9 }));
    await new Promise((resolve) => setTimeout(resolve, 30));
    await model.close();
    told([await endless, await refused(() => model.step(x, y)), await refused(() => model.steps)]);
    """, [place])  # fmt: skip
    for name, status, message in results:
        assert (name, status, message) == ("DigitsError", STATE, "the instance is closed")


def test_closed_by_progress(exported):
    error = told(
        exported,
        """
    const own = await Digits.load();
    told(await refused(() => own.run({ input: x, targets: y, steps: 1e9, progress: () => own.close() })));
    """,
    )
    assert error == ["DigitsError", STATE, "the instance is closed"]


def test_modules_come_from_anywhere(exported, tmp_path):
    (exported / "other.wasm").write_bytes(
        (exported / "digits.wasm").read_bytes().replace(b"digits_build", b"digits_built")
    )
    losses, errors = json.loads(node(PRELUDE + """
    const file = "digits.relaxed.wasm", url = new URL(`./${file}`, import.meta.url), losses = [];
    const bytes = fs.readFileSync(file);
    for (const source of [undefined, file, url, url.href, bytes, new Uint8Array(bytes).buffer,
        new WebAssembly.Module(bytes), new Response(bytes),
        `data:application/wasm;base64,${bytes.toString("base64")}`]) {
      const model = await Digits.load(source);
      losses.push(await model.step(rows(x, 0, 16), rows(y, 0, 16)));
      model.close();
    }
    const errors = [];
    const missing = new Response("", { status: 404, statusText: "Not Found" });
    for (const source of ["nowhere.wasm", "digits.mjs", "other.wasm", missing])
      errors.push(await refused(() => Digits.load(source)));
    errors.push(await refused(() => Digits.worker("nowhere.wasm")));
    errors.push(await refused(() => new Digits()));
    told([losses, errors]);
    """, exported))  # fmt: skip
    assert len(losses) == 9 and len(set(losses)) == 1
    messages = ["no such file", "no WebAssembly module", "not of the same export", "404 Not Found", "no such file"]
    for (name, status, text), message in zip(errors, messages, strict=False):
        assert (name, status) == ("DigitsError", FILE) and message in text
    assert errors[-1][0] == "TypeError"


def test_instances_know_nothing_of_each_other(exported):
    losses = told(
        exported,
        """
    const other = await Digits.load();
    await model.run({ input: x, targets: y, epochs: 1 });
    told([await other.steps, await model.steps, await other.step(rows(x, 0, 16), rows(y, 0, 16))]);
    """,
    )
    assert losses[:2] == [0, 12]


def test_memory_is_used_again(exported):
    """A thousand calls take no more than the largest."""
    grown = told(exported, """
    const { instantiate } = WebAssembly;
    let memory;
    WebAssembly.instantiate = async (...given) => {
      const made = await instantiate(...given);
      memory = made.exports.memory;
      return made;
    };
    const own = await Digits.load(), sizes = [];
    for (let i = 0; i < 1000; i++) {
      await own.predict(x);
      if (i % 100 === 0) await own.run({ input: x, targets: y, steps: 1 });
      await refused(() => own.predict(x.subarray(1)));
      sizes.push(memory.buffer.byteLength);
    }
    told([sizes[1], sizes.at(-1)]);
    """)  # fmt: skip
    assert grown[0] == grown[1]


def test_no_memory(exported):
    error, outputs, losses = told(
        exported,
        """
    const { grow } = WebAssembly.Memory.prototype;
    WebAssembly.Memory.prototype.grow = () => { throw new RangeError("no more"); };
    const error = await refused(() => model.predict(new Float32Array(64 << 14)));
    WebAssembly.Memory.prototype.grow = grow;
    const { length } = await model.predict(new Float32Array(64 << 14));
    told([error, length, await model.step(rows(x, 0, 16), rows(y, 0, 16))]);
    """,
    )
    assert error[:2] == ["DigitsError", MEMORY] and "there is no memory for 4194304 bytes" in error[2]
    assert outputs == 10 << 14 and losses > 0


def test_weights_that_are_not_embedded(exported, tmp_path):
    trainer = make_trainer()
    folder = tmp_path / "apart"
    trainer.export(folder, target="wasm32", name="digits", batch_size=BATCH, embed=False)
    assert (folder / "digits.wasm").stat().st_size < (exported / "digits.wasm").stat().st_size
    for name in ("x.bin", "y.bin"):
        (folder / name).write_bytes((exported / name).read_bytes())
    script = """
    await model.restore(fs.readFileSync("digits.safetensors"));
    told([await model.step(rows(x, 0, 16), rows(y, 0, 16))]);
    """
    x, y = dataset()
    expected = float(trainer.update(x[:BATCH], y[:BATCH]).numpy())
    assert told(folder, script)[0] == pytest.approx(expected, rel=1e-5)


def test_the_example_trains(exported):
    lines = node('await import("./example/main.mjs");', exported).splitlines()
    losses = [float(line.partition("loss ")[2]) for line in lines[:10]]
    assert losses[-1] < losses[0]
    assert lines[-1].startswith("a checkpoint has")


@pytest.mark.parametrize("name", MODELS)
def test_ten_losses_of_larger_models(name, tmp_path):
    """LeNet with batch norm and dropout, a small GPT."""
    need_zig()
    made, data = MODELS[name]()
    made.export(tmp_path / "dist", target="wasm32", name="net", batch_size=BATCH)
    kinds = ["BigInt64Array" if a.dtype == np.int64 else "Float32Array" for a in data]
    for column, array in zip("xy", data, strict=True):
        array.tofile(tmp_path / "dist" / f"{column}.bin")
    script = f"""
    import fs from "node:fs";
    import {{ {class_name("net")} as Net }} from "./net.mjs";
    const array = (file, Kind) => new Kind(new Uint8Array(fs.readFileSync(file)).buffer);
    const x = array("x.bin", {kinds[0]}), y = array("y.bin", {kinds[1]}), found = [];
    const batch = (a, i) => a.subarray(i * a.length / 10, (i + 1) * a.length / 10);
    for (const source of ["net.wasm", "net.relaxed.wasm"]) {{
      const model = await Net.load(source), losses = [];
      for (let i = 0; i < 10; i++) losses.push(model.step(batch(x, i), batch(y, i)));
      found.push(losses);
    }}
    console.log(JSON.stringify(found));
    """
    found = json.loads(node(script, tmp_path / "dist"))
    expected = [float(np.asarray(made.update(*b))) for b in batches(data)]
    for losses in found:
        np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_other_models(tmp_path):
    """Dropout, a loss without classes, targets that are rows, and names that JavaScript has already."""
    need_zig()
    x, y = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3), np.linspace(0, 1, 16, dtype=np.float32).reshape(8, 2)
    trainer = pullback.trainer(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)), "mse", optim.SGD(0.1),
                               example=x, seed=3)  # fmt: skip
    trainer.export(tmp_path / "dist", target="wasm32", name="worker", batch_size=8)
    script = f"""
    import {{ WorkerModel, WorkerModelWorker }} from "./worker.mjs";
    const [x, y] = [{x.ravel().tolist()}, {y.ravel().tolist()}], results = [];
    for (const model of [await WorkerModel.load(), await WorkerModel.worker()]) {{
      const {{ loss, accuracy }} = await model.evaluate(x, y), losses = [];
      for (let i = 0; i < 3; i++) losses.push(await model.step(x, y));
      results.push([loss, String(accuracy), losses]);
      await model.close();
    }}
    console.log(JSON.stringify(results));
    """
    here, there = json.loads(node(script, tmp_path / "dist"))
    assert here == there
    assert here[0] == pytest.approx(trainer.evaluate(x, y).loss, rel=1e-5) and here[1] == "NaN"
    np.testing.assert_allclose(here[2], [float(trainer.update(x, y).numpy()) for _ in range(3)], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("digits", "Digits"), ("hand_digits", "HandDigits"), ("x2", "X2"), ("worker", "WorkerModel"), ("map", "MapModel")],
)
def test_names_of_classes(name, expected):
    assert class_name(name) == expected
