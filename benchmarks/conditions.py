"""conditions.*: how late the ticks of a periodic source are, against a loop that sleeps until each tick. On a quiet machine."""
import time

from common import report, spread, wanted

PERIOD, TICKS, ROUNDS = 0.01, 100, 5
AIM_MS = 1.0  # of the 95th percentile


def late_ms(ticks) -> float:
    """The 95th percentile of how far from their places starts are, in milliseconds; places are counted from the first start."""
    starts = []
    for _ in ticks:
        starts.append(time.monotonic())
    off = sorted(abs(start - starts[0] - k * PERIOD) * 1e3 for k, start in enumerate(starts))
    return off[int(0.95 * (len(off) - 1))]


def sleeping():
    begin = time.monotonic()
    for k in range(TICKS):
        time.sleep(max(0.0, begin + k * PERIOD - time.monotonic()))
        yield k


def conditions():
    from sluice import flow

    return flow.Conditions().periodic(PERIOD).count(TICKS)


if __name__ == "__main__":
    if wanted("conditions.periodic"):
        late_ms(conditions())
        ours, peer = zip(*[(late_ms(conditions()), late_ms(sleeping())) for _ in range(ROUNDS)])
        report("conditions.periodic", sorted(ours)[ROUNDS // 2], AIM_MS, "the aim, 1 ms of a period of 10", "ms, 95th percentile", ROUNDS, spread(ours),
               also={"a loop that sleeps": sorted(peer)[ROUNDS // 2]})
