"""Tells where time goes: torch.profiler, and OneFlow's names for it. Calls of ops and the kernels of plans, with their times."""

from sluice._graph.recording import trace as trace
from sluice.profiler.live import live as live
from sluice.profiler._record import range_pop as range_pop, range_push as range_push, record_function as record_function
from sluice.profiler.placement import Advice as Advice, Move as Move, advise_placement as advise_placement
from sluice.profiler.overhead import Overhead as Overhead, overhead as overhead
from sluice.profiler.profile import (
    ProfilerAction as ProfilerAction, ProfilerActivity as ProfilerActivity, kineto_available as kineto_available,
    profile as profile, profiler_start as profiler_start, profiler_stop as profiler_stop, schedule as schedule,
    supported_activities as supported_activities, tensorboard_trace_handler as tensorboard_trace_handler)


def __getattr__(name: str) -> object:
    from sluice._names.left_out import missing

    raise missing("sluice.profiler", name)
