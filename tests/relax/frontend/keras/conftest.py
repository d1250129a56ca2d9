"""Keras chooses its backend when it is imported: here JAX, unless the environment says otherwise."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
