"""Where the time of a worker goes, and what to change: `headrace profile`.

Reading order: load (what is asked of the worker), loop (a worker's inner loop, timed by parts: step), costs (what a
step reads and computes; weights: of which model), reference (what this machine can do), summary, verdict and advice
(pure: what it comes to), evidence (the torch profiler), picture, run (all of it in order).
"""
