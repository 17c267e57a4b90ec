"""busy.digits: calls of the digits net beside other busy processes: as many as on a quiet machine, share for share."""
import multiprocessing as mp
import os
import statistics
import time

from common import Side, report, spread, wanted
from train import digits_net

CORES = len(os.sched_getaffinity(0))
BATCH = 32
SECONDS = 2.0


def busy_loop() -> None:
    while True:
        pass


class BusyLoops:
    """As many processes that never rest as there are cores."""

    def __enter__(self):
        context = mp.get_context("spawn")
        self.processes = [context.Process(target=busy_loop, daemon=True) for _ in range(CORES)]
        for process in self.processes:
            process.start()
        time.sleep(1)  # until they have been started

    def __exit__(self, *exc):
        for process in self.processes:
            process.terminate()
            process.join()


def digits_calls(latencies):
    """Calls one after the other, as a small service would make them. `latencies`: where those of a run go."""
    import sluice as torch

    class Infer(torch.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = digits_net(torch.nn).eval()

        def build(self, x):
            return self.model(x)

    torch.manual_seed(0)
    graph, x = Infer(), torch.randn(BATCH, 1, 8, 8)
    graph(x).numpy()

    def run(calls):
        for i in range(calls):
            begin = time.perf_counter()
            graph(x).numpy()
            if i < len(latencies):
                latencies[i] = time.perf_counter() - begin
    return run


def rates(side: Side, latencies, rounds: int) -> tuple[list[float], list[float]]:
    """Calls per second of each round, and all latencies."""
    count = max(3, int(SECONDS / side.time(20)))
    count = min(len(latencies), max(3, int(SECONDS / side.time(count // 4 + 1))))
    speeds, all_latencies = [], []
    for _ in range(rounds):
        speeds.append(1 / side.time(count))
        all_latencies += latencies[:count]
    return speeds, all_latencies


def main() -> None:
    if not wanted("busy.digits"):
        return
    latencies = mp.get_context("spawn").Array("d", 100_000, lock=False)
    side = Side(digits_calls, latencies)
    quiet, _ = rates(side, latencies, rounds=5)
    with BusyLoops():
        busy, seconds = rates(side, latencies, rounds=5)
    side.close()
    share = statistics.median(quiet) / 2  # of two claims to every core, one is ours
    p50, p99 = statistics.median(seconds), statistics.quantiles(seconds, n=100)[98]
    report("busy.digits", statistics.median(busy), share, "the fair share of a quiet machine's", "calls/s", len(busy),
           spread(busy), ratio=statistics.median(busy) / share, also={
               "quiet_calls_per_s": statistics.median(quiet), "p50_ms": p50 * 1e3, "p99_ms": p99 * 1e3,
               "p99_over_p50": p99 / p50, "busy_processes": CORES})


if __name__ == "__main__":
    main()
