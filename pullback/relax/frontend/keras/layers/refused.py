"""Layers that are not converted, and why not."""

from __future__ import annotations

from pullback.relax.frontend.keras.table import KERAS

_AUGMENTS = "augmentation by Keras's random numbers; pullback.nn.aug has random flips, crops and mixup"
_STRINGS = "it takes strings or hashes; do it before the model"
_SPECTRA = "there are no complex numbers here"
_FOREIGN = "it is code of another framework"

KERAS.refuse(
    {
        f"layers.{name}": _AUGMENTS
        for name in (
            "AugMix", "AutoContrast", "ContrastLimitedAdaptiveHistogramEqualization", "CutMix", "Equalization", "MixUp",
            "RandAugment", "RandomBrightness", "RandomColorDegeneration", "RandomColorJitter", "RandomContrast",
            "RandomCrop", "RandomElasticTransform", "RandomErasing", "RandomFlip", "RandomGaussianBlur",
            "RandomGrayscale", "RandomHue", "RandomInvert", "RandomPerspective", "RandomPosterization",
            "RandomRotation", "RandomSaturation", "RandomSharpness", "RandomShear", "RandomTranslation", "RandomZoom",
            "Solarization", "MaxNumBoundingBoxes", "Pipeline",
        )
    }
)  # fmt: skip
KERAS.refuse(
    {f"layers.{n}": _STRINGS for n in ("HashedCrossing", "Hashing", "IntegerLookup", "StringLookup",
                                       "TextVectorization")}
)  # fmt: skip
KERAS.refuse({f"layers.{n}": _SPECTRA for n in ("MelSpectrogram", "STFTSpectrogram")})
KERAS.refuse({f"layers.{n}": _FOREIGN for n in ("FlaxLayer", "JaxLayer", "TFSMLayer", "TorchModuleWrapper")})
KERAS.refuse({"layers.SpectralNormalization": "a step assigns its kernel anew, which is a parameter"})
