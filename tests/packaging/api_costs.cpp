// What calls of the installed library cost, as lines "name value": api_costs MLP IDENTITY.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sluice/sluice.hpp>

namespace api = sluice::api;
using Clock = std::chrono::steady_clock;

std::atomic<uint64_t> allocations{0};
extern "C" void* __libc_malloc(size_t bytes);
extern "C" void* malloc(size_t bytes) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}

template <class F>
double best_us(int n, F&& call) {
  double best = 1e18;
  for (int i = 0; i < n; ++i) {
    const auto begin = Clock::now();
    call();
    best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return best;
}

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  api::Engine engine({.cores = 1});
  {
    api::Session session = api::Session::load(engine, argv[1]);
    const api::Tensor x(session.inputs()[0].dtype, session.inputs()[0].shape);
    uint64_t fewest = UINT64_MAX;
    const double us = best_us(2000, [&] {
      const uint64_t before = allocations;
      session.run({x});
      fewest = std::min<uint64_t>(fewest, allocations - before);
    });
    std::printf("run_us %.2f\nrun_allocations %llu\n", us, static_cast<unsigned long long>(fewest));
  }
  for (const bool zero_copy : {false, true}) {
    api::Session session = api::Session::load(engine, argv[2], {.zero_copy = zero_copy});
    const api::Tensor x(session.inputs()[0].dtype, session.inputs()[0].shape);
    const size_t bytes = x.bytes();
    std::vector<char> a(bytes, 1), b(bytes, 1);
    double run = 1e18, copies = 1e18;
    for (int round = 0; round < 15; ++round) {  // in turns, so that both meet the same neighbours
      run = std::min(run, best_us(1, [&] {
                       if (zero_copy)
                         session.hand_over({x}).get();
                       else
                         session.run({x});
                     }));
      copies = std::min(copies, best_us(1, [&] {
                          std::memcpy(a.data(), x.raw(), bytes);
                          std::memcpy(b.data(), a.data(), bytes);
                        }));
    }
    std::printf("%s_mib %zu\n%s_us %.0f\ntwo_memcpys_us %.0f\n", zero_copy ? "exchanged" : "copied", bytes >> 20,
                zero_copy ? "exchanged" : "copied", run, copies);
  }
} catch (const api::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
