"""Random programs that torch and Sluice must run alike: eagerly and, for Sluice, as a graph.

Read in this order: program.py (a program as plain data, and its Python source), executor.py (runs that source on torch or
on Sluice), compare.py (what must be equal, and how nearly), generator.py with vocabulary.py (draws programs), check.py (one
program against torch), shrink.py, workers.py (many programs in processes of their own), __main__.py.

    PYTHONPATH=tests/python:build/release/python .venv/bin/python -m differential --seed 7 --count 100 --shrink
"""
