// Measures what calls of the installed library cost, as lines "name value": api_costs MLP IDENTITY.
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sluice/sluice.hpp>

namespace api = sluice::api;
using Clock = std::chrono::steady_clock;

std::atomic<uint64_t> allocations{0}, of_libraries{0};
std::atomic<bool> attributed{false};
extern "C" void* __libc_malloc(size_t bytes);

// Whether oneDNN allocates: some caller, before one of Sluice, is in it.
bool is_a_librarys() {
  void* frames[24];
  const int n = backtrace(frames, 24);
  for (int i = 0; i < n; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
    if (std::strstr(info.dli_fname, "libsluice") != nullptr) return false;
    if (std::strstr(info.dli_fname, "libdnnl") != nullptr) return true;
  }
  return false;
}

extern "C" void* malloc(size_t bytes) noexcept {
  static thread_local bool inside = false;
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (attributed && !inside) {
    inside = true;
    if (is_a_librarys()) of_libraries.fetch_add(1, std::memory_order_relaxed);
    inside = false;
  }
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

// Measures one call, once caches are warm: its time, and then, more slowly, its allocations and whose they are.
template <class F>
void print_call(const char* name, F&& call) {
  const double us = best_us(2000, call);
  uint64_t fewest = UINT64_MAX, ours = UINT64_MAX;
  attributed = true;
  for (int i = 0; i < 200; ++i) {
    const uint64_t before = allocations, libraries_before = of_libraries;
    call();
    const uint64_t all = allocations - before;
    fewest = std::min(fewest, all);
    ours = std::min(ours, all - (of_libraries - libraries_before));
  }
  attributed = false;
  std::printf("%s_us %.2f\n%s_allocations %llu\n%s_ours %llu\n", name, us, name,
              static_cast<unsigned long long>(fewest), name, static_cast<unsigned long long>(ours));
}

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  api::Engine engine({.cores = 1});
  {
    api::Session session = api::Session::load(engine, argv[1]);
    const std::vector<api::Tensor> x = {{session.inputs()[0].dtype, session.inputs()[0].shape}};
    const std::vector<api::Tensor> y = {{session.outputs()[0].dtype, session.outputs()[0].shape}};
    print_call("run", [&] { session.run(x); });
    print_call("run_into", [&] { session.run_into(x, y); });
  }
  api::Session copying = api::Session::load(engine, argv[2]);
  api::Session exchanging = api::Session::load(engine, argv[2], {.zero_copy = true});
  const api::Port& port = copying.inputs()[0];
  const std::vector<api::Tensor> x = {{port.dtype, port.shape}}, y = {{port.dtype, port.shape}};
  const size_t bytes = x[0].bytes();
  const api::Tensor a(port.dtype, port.shape), b(port.dtype, port.shape);
  double copied = 1e18, into = 1e18, exchanged = 1e18, copies = 1e18;
  for (int round = 0; round < 15; ++round) {  // in turns, so that all meet the same neighbours
    copied = std::min(copied, best_us(1, [&] { copying.run(x); }));
    into = std::min(into, best_us(1, [&] { copying.run_into(x, y); }));
    exchanged = std::min(exchanged, best_us(1, [&] { exchanging.hand_over(x).get(); }));
    copies = std::min(copies, best_us(1, [&] {
                        std::memcpy(a.raw(), x[0].raw(), bytes);
                        std::memcpy(b.raw(), a.raw(), bytes);
                      }));
  }
  std::printf("mib %zu\ncopied_us %.0f\ninto_us %.0f\nexchanged_us %.0f\ntwo_memcpys_us %.0f\n", bytes >> 20, copied,
              into, exchanged, copies);
} catch (const api::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
