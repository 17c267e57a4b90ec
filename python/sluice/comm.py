"""OneFlow's name for collectives: those of sluice.distributed."""

from sluice.distributed import (all_gather as all_gather, all_gather_into_tensor as all_gather_into_tensor,
                                all_reduce as all_reduce,
                                all_to_all as all_to_all, barrier as barrier, broadcast as broadcast, gather as gather,
                                recv as recv,
                                reduce as reduce, reduce_scatter as reduce_scatter,
                                reduce_scatter_tensor as reduce_scatter_tensor,
                                scatter as scatter, send as send)


def __getattr__(name: str) -> object:
    from sluice._names.left_out import missing

    raise missing("sluice.comm", name)
