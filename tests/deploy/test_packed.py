"""Functions by registered name in an exported library: registered in C, called in every step."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import pullback
from pullback.relax.op import register_packed_gradient
from pullback.relax.training import SetupTrainer, Trainer
from pullback.relax.training.loss import MSELoss
from pullback.relax.training.optimizer import SGD
from pullback.runtime.registry import register_func, remove_global_func
from pullback.script import ir as I
from pullback.script import relax as R

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

DRIVER = """
#include <stdio.h>
#include <string.h>
#include "net.h"

static int calls = 0;

static int32_t triple(const net_array *arrays, int32_t inputs, int32_t outputs)
{
    const float *x = arrays[0].data;
    float *y = arrays[1].data;
    if (inputs != 1 || outputs != 1 || arrays[0].ndim != 2 || strcmp(arrays[1].dtype, "float32"))
        return 1;
    calls++;
    for (int64_t k = 0; k < arrays[0].shape[0] * arrays[0].shape[1]; k++)
        y[k] = 3 * x[k];
    return 0;
}

static int32_t refuse(const net_array *arrays, int32_t inputs, int32_t outputs)
{
    (void)arrays, (void)inputs, (void)outputs;
    return 7;
}

int main(void)
{
    static _Alignas(64) unsigned char memory[1 << 20];
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, t[8] = {0}, out[8];
    double loss = 0;
    net *self;
    if (net_init(memory, sizeof memory, 1, &self) != NET_OK)
        return 1;
    printf("%d\\n", net_step(self, x, t, &loss));
    printf("%s\\n", net_last_error(self));
    printf("%d %d\\n", net_register_function("t.none", triple), net_register_function(NULL, triple));
    printf("%d\\n", net_register_function("t.scale", refuse));
    printf("%d\\n", net_step(self, x, t, &loss));
    printf("%d\\n", net_register_function("t.scale", triple));
    for (int k = 0; k < 3; k++) {
        int status = net_step(self, x, t, &loss);
        printf("%d %.9g\\n", status, loss);
    }
    printf("%d\\n", net_predict(self, x, 4, out));
    for (int k = 0; k < 8; k++)
        printf("%.9g ", out[k]);
    printf("\\n%d\\n", calls);
    net_close(self);
    return 0;
}
"""


@I.ir_module
class Model:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor((4, 2), "float32"), w: R.Tensor((2, 2), "float32")):
        y = R.call_pure_packed("t.scale", R.matmul(x, w), sinfo_args=R.Tensor((4, 2), "float32"))
        return y


@pytest.fixture(scope="module")
def trainer():
    register_func("t.scale", lambda a: 3 * a.numpy(), override=True)
    register_packed_gradient("t.scale", lambda dy, y, a: [dy * 3.0])
    module = SetupTrainer(MSELoss(), SGD(0.001), [R.Tensor((4, 2)), R.Tensor((4, 2))])(Model)
    made = Trainer(module, pullback.VirtualMachine(pullback.compile(module), pullback.cpu()), pullback.cpu())
    made.load_params([np.ones((2, 2), "float32")])
    yield made
    remove_global_func("t.scale")


@pytest.mark.parametrize("kind", ["archive", "shared"])
def test_a_function_of_c_in_a_library(trainer, kind, tmp_path):
    trainer.load_params([np.ones((2, 2), "float32")])
    folder = Path(tmp_path) / "out"
    trainer.export(folder, name="net", functions=("step", "predict", "evaluate"))
    (tmp_path / "driver.c").write_text(DRIVER)
    library = [folder / "libnet.a"] if kind == "archive" else [f"-L{folder}", "-lnet", f"-Wl,-rpath,{folder}"]
    if kind == "shared":
        (folder / "libnet.a").unlink()
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{folder}", tmp_path / "driver.c", *library]
    subprocess.run([*command, "-pthread", "-lm", "-o", tmp_path / "driver"], check=True)
    lines = subprocess.run([tmp_path / "driver"], check=True, capture_output=True, text=True).stdout.splitlines()

    x, target = np.arange(1, 9, dtype="float32").reshape(4, 2), np.zeros((4, 2), "float32")
    losses = [float(trainer.update(x, target).numpy()) for _ in range(3)]
    assert lines[0] == "5" and "the function 't.scale' failed" in lines[1]
    assert lines[2] == "1 1", "functions that the model does not call cannot be registered"
    assert lines[3:6] == ["0", "5", "0"]
    for line, loss in zip(lines[6:9], losses, strict=True):
        status, value = line.split()
        assert status == "0"
        np.testing.assert_allclose(float(value), loss, rtol=1e-6)
    assert lines[9] == "0"
    predicted = np.array(lines[10].split(), "float32").reshape(4, 2)
    np.testing.assert_allclose(predicted, trainer.predict(x).numpy(), rtol=1e-6)
    assert int(lines[11]) >= 4


def test_libraries_without_such_functions_have_no_word_of_them(tmp_path):
    @I.ir_module
    class Plain:
        I.module_attrs({"param_num": 1, "state_num": 0})

        @R.function
        def backbone(x: R.Tensor((4, 2), "float32"), w: R.Tensor((2, 2), "float32")):
            y = R.matmul(x, w)
            return y

    module = SetupTrainer(MSELoss(), SGD(0.001), [R.Tensor((4, 2)), R.Tensor((4, 2))])(Plain)
    made = Trainer(module, pullback.VirtualMachine(pullback.compile(module), pullback.cpu()), pullback.cpu())
    made.export(tmp_path / "out", name="net")
    text = (tmp_path / "out" / "net.h").read_text()
    assert "register_function" not in text and "net_array" not in text
