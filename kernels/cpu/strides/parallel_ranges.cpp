#include <omp.h>

#include <algorithm>

#include "kernels/cpu/strides/strided.h"
#include "kernels/worker_threads.h"

namespace sluice::cpu {

void parallel_ranges(int threads, int64_t n, int64_t grain, void (*f)(const void*, int64_t, int64_t),
                     const void* context) {
  // All threads or one: teams of changing size are costly.
  if (threads <= 1 || n < 2 * grain) {
    f(context, 0, n);
    return;
  }
  // In elements, so that threads write different cache lines; where that leaves none with much less than the others.
  constexpr int64_t kAlign = 64;
  const int64_t even = (n + threads - 1) / threads;
  const int64_t share = even >= 16 * kAlign ? (even + kAlign - 1) / kAlign * kAlign : even;
  WorkerThreads::take_team(threads);
#pragma omp parallel num_threads(threads)
  {
    // OMP_THREAD_LIMIT or OMP_DYNAMIC may give a smaller team than was asked for.
    const int64_t stride = share * omp_get_num_threads();
    for (int64_t begin = share * omp_get_thread_num(); begin < n; begin += stride) {
      f(context, begin, std::min(n, begin + share));
    }
  }
}

void parallel_jobs(int threads, int64_t n, void (*f)(const void*, int64_t, int), const void* context) {
  if (threads <= 1 || n < 2) {
    for (int64_t job = 0; job < n; ++job) f(context, job, 0);
    return;
  }
  WorkerThreads::take_team(threads);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t job = 0; job < n; ++job) f(context, job, omp_get_thread_num());
}

}  // namespace sluice::cpu
