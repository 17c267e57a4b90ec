"""The exceptions Sluice raises: each is sluice.Error and the builtin of the same name."""

from sluice._C import (CancelledError, Error, IndexError, MemoryError, NotImplementedError, OSError, RuntimeError,  # noqa: A004,F401
                       TimeoutError, TypeError, ValueError)
