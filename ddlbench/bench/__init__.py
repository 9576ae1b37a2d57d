"""Measuring: what is swept, the inputs and their checks, the loop over the points, and what a run stores."""
