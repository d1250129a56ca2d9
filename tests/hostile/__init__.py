"""Wrong inputs of every kind, made from a seed: arrays, arguments, checkpoints, cache entries, texts, command lines.

What comes of each must be the right answer or a UserError, with everything as it was before; never a crash, a hang, a
bare exception, or a number that is wrong in silence.

* ``make test`` runs some seeds of each family (``test_hostile.py``).
* ``python -m tests.hostile --minutes 20`` runs new ones, in processes with limits of time and memory, and prints for
  each finding the command that repeats it.

A family is a module with a function ``case(random, folder)``, which makes one wrong input and raises a ``Finding`` when
what comes of it is wrong.
"""
