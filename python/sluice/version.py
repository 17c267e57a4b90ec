"""torch.version: what this build is of. `cuda` and `hip` are toolkits that it was built against: none, since drivers and libraries
are loaded when they are first asked for (`sluice.cuda.is_available()`)."""

from sluice._C import __version__ as __version__

cuda = hip = xpu = None
debug = False
