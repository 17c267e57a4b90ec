"""Guards on what traced code reads besides its arguments, and whether it is still so: for sluice.compile and nn.Graph.

`values.py` compares values, `code.py` says what code reads, `held.py` has guards, `reach.py` follows code to them, and `reads.py`
notes what is read of objects while code is traced.
"""
