"""Metrics: numbers that say how good predictions are, computed over whole epochs and data sets.

    trainer.fit(x, y, validation=(x_test, y_test), metrics=["f1", "top5", sklearn.metrics.matthews_corrcoef])
    trainer.evaluate(x_test, y_test, metrics={"kappa": sklearn.metrics.cohen_kappa_score}).metrics

A metric is a name of :data:`NAMES`, or a function ``f(y_true, y_pred)`` that returns a number, such as those of
``sklearn.metrics``. A function is called once, with all rows: a mean of batches is in general another number. It is
called by its own name; ``("name", f)`` and ``{"name": f}`` give it another. What it gets follows from the loss, which
is what says how predictions are to be read:

- of a classification (cross entropies, NLL, multi-margin), ``y_true`` and ``y_pred`` are class indices, int64, one for
  each row (pixel, token, …) whose target is not ignored, in one axis;
- of a binary loss (binary cross entropies, soft margin, hinge), they are 0 or 1, int64: in one axis, or of several
  labels a row in shape (rows, labels);
- else, targets and predictions as the model has them, float64 or an integer dtype, in their own shape.

``Metric(f, needs=…)`` asks for something else as ``y_pred``: "probabilities" (softmax or sigmoid of the outputs, if the
loss takes logits: shape (rows, classes), of two classes those of the second, as ``sklearn.metrics.roc_auc_score`` wants
it), or "outputs", the model's own outputs, with classes in the last axis. A model of several outputs is measured by the
first, and by the first target. Weights of rows do not count in metrics.

The named metrics keep sums, not predictions, but for "auc" and "average_precision", which need all scores.
"""

from __future__ import annotations

from pullback.relax.training.metrics.asked import Metric, Metrics, Running
from pullback.relax.training.metrics.named import NAMES
from pullback.relax.training.metrics.reading import Reading

__all__ = ["NAMES", "Metric", "Metrics", "Reading", "Running"]
