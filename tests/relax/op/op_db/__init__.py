"""PyTorch's own table of operators, ``op_db``, as an oracle: its sample inputs go through our ops too.

``table.py`` keeps what of theirs is which op of ours; the files beside it fill it, one family each, with functions of
the signature of PyTorch's operator. ``reasons.txt`` says of everything else, on both sides, why it is not there.
``python -m tests.relax.op.op_db`` prints the counts.
"""
