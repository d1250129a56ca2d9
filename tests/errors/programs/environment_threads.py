# The number of threads is no number.
# environment: PULLBACK_NUM_THREADS=abc
import pullback

print(pullback.__version__)
