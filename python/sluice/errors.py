"""The exceptions Sluice raises: each is sluice.Error, which is a RuntimeError, and the builtin of the same name."""

from sluice._C import (  # noqa: A004,F401
    CancelledError as CancelledError, DeviceError as DeviceError, EndOfData as EndOfData, Error as Error,
    IndexError as IndexError, LinAlgError as LinAlgError, MemoryError as MemoryError,
    NotImplementedError as NotImplementedError, OSError as OSError, RuntimeError as RuntimeError, TimeoutError as TimeoutError,
    TypeError as TypeError, ValueError as ValueError)
