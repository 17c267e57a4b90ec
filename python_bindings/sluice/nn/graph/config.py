"""Options of a graph: each maps to a parameter of the compiler or of the session."""


class GraphConfig:
    """Set before the first call."""

    def __init__(self):
        self._options = {"outputs_buffer_size": 2}
        self._frozen = False

    def _set(self, name, value):
        if self._frozen:
            raise RuntimeError(f"config: '{name}' set after the graph was compiled; set options before the first call")
        self._options[name] = value

    def set_outputs_buffer_size(self, n):
        """Steps in flight: 1 = no overlap of steps."""
        if n < 1:
            raise ValueError(f"set_outputs_buffer_size: got {n}; must be at least 1")
        self._set("outputs_buffer_size", int(n))

    def enable_reuse_mem(self, mode=True):
        """Pack buffers by lifetime; off, each has memory of its own."""
        self._set("reuse_memory", bool(mode))

    def enable_inplace(self, mode=True):
        """Let kernels overwrite inputs that nobody reads afterwards."""
        self._set("in_place", bool(mode))

    def set_granularity(self, granularity):
        """"program": few actors with many kernels; "op": one actor per kernel, to study a plan."""
        if granularity not in ("program", "op"):
            raise ValueError(f"set_granularity: got {granularity!r}; must be 'program' or 'op'")
        self._set("granularity", granularity)

    def set_memory_budget(self, bytes):
        """The plan is refused when it needs more; the error names the smallest budget that works."""
        self._set("memory_budget", int(bytes))

    def set_quota(self, register, n):
        """Slots of one register, by its name in the plan."""
        self._set("quotas", {**self._options.get("quotas", {}), register: int(n)})

    def set_device(self, device):
        """Where ops run that name no device themselves."""
        self._set("device", device)

    def set_cores(self, n):
        """Cores of the compute stream's kernels."""
        self._set("cores", int(n))

    def enable_check_numerics(self, mode=True):
        """Fail the step at the first kernel that writes a NaN or an infinity, and dump it."""
        self._set("check_numerics", bool(mode))

    def enable_trace(self, mode=True):
        """Record firings, kernels and waits from the first step; see Graph.save_trace."""
        self._set("trace", bool(mode))

    def set_submit_timeout(self, seconds):
        """A call at capacity waits so long, then raises TimeoutError; 0 = raise at once, None = wait."""
        self._set("submit_timeout", seconds)

    def set_wait_timeout(self, seconds):
        """Reading a result waits so long, then raises TimeoutError naming the actors that are stuck."""
        self._set("wait_timeout", float(seconds))

    def disable_pass(self, name):
        """Skip one compiler pass."""
        from sluice import _C

        if name not in _C.pass_names():
            raise ValueError(f"disable_pass: got {name!r}; passes are {_C.pass_names()}")
        self._set("disabled_passes", [*self._options.get("disabled_passes", []), name])

    def set_dump_dir(self, directory):
        """Write the graph before and after each pass."""
        self._set("dump_dir", str(directory))

    def for_session(self):
        """The options as the compiler takes them; frozen from now on."""
        self._frozen = True
        return {k: v for k, v in self._options.items() if k != "submit_timeout"}

    @property
    def submit_timeout(self):
        value = self._options.get("submit_timeout")
        return -1.0 if value is None else float(value)

    def __repr__(self):
        return "config(" + ", ".join(f"{k}={v!r}" for k, v in sorted(self._options.items())) + ")"
