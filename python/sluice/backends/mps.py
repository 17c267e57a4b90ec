"""Apple's GPUs, of which there is no backend (`torch.backends.mps`)."""


def is_available() -> bool:
    """False."""
    return False


def is_built() -> bool:
    """False."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """False: Sluice runs on Linux."""
    return False


def is_macos13_or_newer(minor: int = 0) -> bool:
    """False: Sluice runs on Linux."""
    return False
