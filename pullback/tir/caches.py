"""What the caches of all CPUs have in common that code is made for so far."""

LINE = 64  # bytes that come into a cache together
PAGE = 4096  # bytes from one line of a set of the nearest cache to the next one; prefetchers stay within a page
NEAR = 16 << 10  # bytes that stay in the nearest cache beside what else is there
FAR = 1 << 18  # bytes that the nearest caches of a few threads don't hold
