"""What a contraction computes, and in which equivalent forms."""
