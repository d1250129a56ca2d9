"""What the browser's benchmark times is a step of Python's trainer."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pullback
from benchmarks import web
from pullback import optim
from tests.deploy.tools import need_program, need_zig


@pytest.mark.parametrize("model", web.MODELS)
def test_steps_are_those_of_python(model, tmp_path):
    chromium = need_program("chromium", "chromium-browser", "google-chrome")
    need_zig()
    for file in web.PAGES.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    web.write_model(model, tmp_path)
    found = web.measure(model, ["pullback", "pullback worker", "tfjs"], 1, 0.01, chromium, tmp_path)
    assert "cannot be loaded" in found["tfjs"]["failure"]  # there are no packages here

    about = json.loads((tmp_path / f"{model}.json").read_text())
    values, tensors = np.fromfile(tmp_path / f"{model}.bin", np.float32), []
    for shape in about["shapes"]:
        count = int(np.prod(shape))
        tensors.append(values[:count].reshape(shape))
        values = values[count:]
    x, weights = tensors[0], tensors[1:]
    trainer = pullback.trainer(web.network(model), "cross_entropy", optim.SGD(web.RATE), example=x)
    trainer.load_params(weights)
    expected = [float(trainer.update(x, np.array(about["labels"])).numpy()) for _ in range(web.STEPS)]
    for side in ("pullback", "pullback worker"):
        np.testing.assert_allclose(found[side]["losses"], expected, rtol=1e-5)
        assert found[side]["rounds"][0] >= found[side]["best"] > 0
    assert not web.agree({"pullback": {"losses": [1.0]}, "other": {"losses": [1.1]}})
    assert web.agree({"pullback": {"losses": [1.0]}, "other": {"failure": "none"}})
    assert not web.agree({"pullback": {"failure": "none"}, "other": {"losses": [1.0]}})
