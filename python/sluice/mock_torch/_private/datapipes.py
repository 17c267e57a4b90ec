"""torch.utils.data.datapipes.iter, as far as packages derive from it."""

from __future__ import annotations

from itertools import islice
from typing import Any, Iterator

from sluice.mock_torch._private.refused import refused_module
from sluice.utils.data.datapipes import IterDataPipe


class Batcher(IterDataPipe):
    """Items of a pipe in batches, each of them wrapper_class(list)."""

    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Any = list) -> None:
        if batch_size < 1:
            raise ValueError(f"Batcher: got batch_size {batch_size}; must be at least 1")
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = datapipe, batch_size, drop_last, wrapper_class

    def __iter__(self) -> Iterator[Any]:
        items = iter(self.datapipe)
        while batch := list(islice(items, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.wrapper_class(batch)

    def __len__(self) -> int:
        whole, rest = divmod(len(self.datapipe), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


MODULES = {f"torch.utils.data.datapipes.iter{name}": refused_module(f"torch.utils.data.datapipes.iter{name}", Batcher=Batcher)
           for name in ("", ".combinatorics")}
