"""The job this process takes part in, if any."""

from sluice.errors import RuntimeError  # noqa: A004


class _State:
    world = None  # _C.World
    place = None

    @property
    def rank(self):
        """This process's rank; 0 where there is no job."""
        return 0 if self.world is None else self.world.rank

    def get(self, what):
        if self.world is None:
            raise RuntimeError(f"{what}: the ranks have not met; call sluice.distributed.init() first")
        return self.world


state = _State()
