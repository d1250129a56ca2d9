"""What the caches of all CPUs have in common that code is made for so far."""

LINE = 64  # bytes that come into a cache together
PAGE = 4096  # bytes from one line of a set of the nearest cache to the next one; prefetchers stay within a page
FIRST = 32 << 10  # bytes of data that the nearest cache of every core holds, at the least
NEAR = FIRST // 2  # bytes that stay there beside what else is there
FAR = 8 * FIRST  # bytes that the nearest caches of a few threads don't hold
