"""What an allreduce is for: the iteration of a model's training, its computation and what communication adds to it."""
