"""Vectors in the memory of GPUs: whose device is whose, buffers, and plans that reduce them between ranks."""
