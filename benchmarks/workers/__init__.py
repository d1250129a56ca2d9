"""The measured sides: each file is one program, run in a process of its own by `benchmarks.harness`."""
