"""torch.autograd.profiler: sluice.profiler, by its older names."""

from __future__ import annotations

from typing import Any

from sluice.profiler import kineto_available as kineto_available, profile as _profile, record_function as record_function

__all__ = ["kineto_available", "profile", "record_function"]


class profile(_profile):
    """sluice.profiler.profile without a schedule; with enabled=False it records nothing."""

    def __init__(self, enabled: bool = True, *, record_shapes: bool = False, with_flops: bool = False,
                 profile_memory: bool = False,
                 with_stack: bool = False, with_modules: bool = False, use_cuda: bool = False,
                 acc_events: bool = False) -> None:
        super().__init__(record_shapes=record_shapes, with_flops=with_flops, profile_memory=profile_memory,
                         with_stack=with_stack,
                         with_modules=with_modules, use_cuda=use_cuda, acc_events=acc_events)
        self.enabled = enabled

    def start(self) -> None:
        if self.enabled:
            super().start()

    @property
    def function_events(self) -> Any:
        return self.events()

    def table(self, *args: Any, **kwargs: Any) -> str:
        """The table of all events, each a row."""
        return self.events().table(*args, **kwargs)

    def total_average(self) -> Any:
        return self.events().total_average()
