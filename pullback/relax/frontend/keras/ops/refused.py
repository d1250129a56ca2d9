"""Operations that are not converted, and why not."""

from __future__ import annotations

from pullback.relax.frontend.keras.table import KERAS

_SIZE = "the size of its result depends on the data"
_COMPLEX = "there are no complex numbers here"
_FUNCTION = "it takes Python functions; write the loop or branch with pullback.nn"
_LINALG = "there is no op for it here"

KERAS.refuse(dict.fromkeys(("ops.Nonzero", "ops.Unique", "ops.Bincount", "ops.Histogram"), _SIZE))
KERAS.refuse(
    dict.fromkeys(
        ("ops.FFT", "ops.FFT2", "ops.IFFT2", "ops.RFFT", "ops.IRFFT", "ops.STFT", "ops.ISTFT", "ops.Angle", "ops.Imag",
         "ops.Polar", "ops.ViewAsComplex", "ops.ViewAsReal"), _COMPLEX,
    )
)  # fmt: skip
KERAS.refuse(
    dict.fromkeys(
        ("ops.AssociativeScan", "ops.ForiLoop", "ops.Map", "ops.Scan", "ops.Switch", "ops.VectorizedMap",
         "ops.WhileLoop", "ops.JVP"), _FUNCTION,
    )
)  # fmt: skip
KERAS.refuse(
    dict.fromkeys(
        ("ops.Cholesky", "ops.CholeskyInverse", "ops.Det", "ops.Eig", "ops.Eigh", "ops.Inv", "ops.Lstsq",
         "ops.LuFactor", "ops.MatrixRank", "ops.Pinv", "ops.Qr", "ops.SVD", "ops.Solve", "ops.SolveTriangular",
         "ops.Logdet", "ops.Slogdet"), _LINALG,
    )
)  # fmt: skip
