"""OneFlow's modules of images in buffers, which are left out: names say what to use instead."""


def __getattr__(name: str) -> object:
    from sluice._names.left_out import missing

    raise missing("sluice.nn.image", name)
