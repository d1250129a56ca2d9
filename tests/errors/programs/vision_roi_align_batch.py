# The roi names batch 2 of two, counted from 0.
import numpy as np

import pullback
from pullback.relax import VirtualMachine
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 1, 4, 4), "float32"), rois: R.Tensor((1, 5), "float32")):
    y = R.vision.roi_align(x, rois, pooled_size=2, spatial_scale=1.0)
    return y


def mistake():
    run = VirtualMachine(pullback.compile(main))["main"]
    run(np.zeros((2, 1, 4, 4), "float32"), np.array([[2, 0, 0, 3, 3]], "float32"))
