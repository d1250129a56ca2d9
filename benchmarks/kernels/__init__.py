"""Single kernels that are timed: what each computes, costs and moves, for every side alike."""
