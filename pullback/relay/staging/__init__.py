"""Evaluation whose tensors are expressions of the graph IR: how a program of relay becomes a function of that.

The evaluator runs a program on arrays; this runs it on graph values, which stand for arrays. Functions, references,
data types and matches are computed meanwhile, so what is left of them is what they compute: calls are inlined,
references hold graph values, the branches of a match are chosen. What depends on values of tensors is written:

- an ``If`` on a tensor becomes one of the graph IR; what its branches write to references is a result of it;
- a function that calls itself and takes tensors becomes one of the graph IR, which makes tail calls loops;
- where branches give functions or references, what comes after them is written once for each (gradients of branches).

What has no form there is a :class:`NotDataflow`: a function or data that running chooses in the middle of something.
"""
