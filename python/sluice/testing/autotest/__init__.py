"""Random calls of every function, method and module, compared with torch as it is installed.

    python -m sluice.testing.autotest --ops all --n 20 --seed 7
"""
