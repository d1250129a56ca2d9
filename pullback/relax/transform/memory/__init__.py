"""The parts of plan_memory: what a lowered function computes (values), in what order (order), which values share
memory (sharing), where they lie (offsets), and the host function (host)."""
