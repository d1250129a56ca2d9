# The number of threads is negative.
# environment: PULLBACK_NUM_THREADS=-2
import pullback

print(pullback.__version__)
