#pragma once
// The sizes of the OpenMP teams that a thread asks for. Including this header is all it takes: it interposes what GCC's
// parallel regions call, also those of libraries. Other compilers' regions are not seen.
#include <dlfcn.h>

#include <set>

namespace sluice::test {

inline thread_local std::set<unsigned>* team_sizes = nullptr;

// Watches the thread that makes it, while it lives.
class TeamWatch {
 public:
  TeamWatch() { team_sizes = &sizes_; }
  ~TeamWatch() { team_sizes = nullptr; }
  TeamWatch(const TeamWatch&) = delete;
  const std::set<unsigned>& sizes() const { return sizes_; }

 private:
  std::set<unsigned> sizes_;
};

template <class F>
F next_of(const char* name, unsigned size) {
  if (team_sizes != nullptr) team_sizes->insert(size);
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

}  // namespace sluice::test

#define SLUICE_TEST_INTERPOSED extern "C" __attribute__((used, visibility("default"))) inline void
using TeamBody = void (*)(void*);
SLUICE_TEST_INTERPOSED GOMP_parallel(TeamBody body, void* data, unsigned size, unsigned flags) {
  sluice::test::next_of<decltype(&GOMP_parallel)>("GOMP_parallel", size)(body, data, size, flags);
}
SLUICE_TEST_INTERPOSED GOMP_parallel_loop_dynamic(TeamBody body, void* data, unsigned size, long begin, long end,
                                                  long step, long chunk, unsigned flags) {
  const auto next = sluice::test::next_of<decltype(&GOMP_parallel_loop_dynamic)>("GOMP_parallel_loop_dynamic", size);
  next(body, data, size, begin, end, step, chunk, flags);
}
SLUICE_TEST_INTERPOSED GOMP_parallel_loop_nonmonotonic_dynamic(TeamBody body, void* data, unsigned size, long begin,
                                                               long end, long step, long chunk, unsigned flags) {
  const auto next = sluice::test::next_of<decltype(&GOMP_parallel_loop_nonmonotonic_dynamic)>(
      "GOMP_parallel_loop_nonmonotonic_dynamic", size);
  next(body, data, size, begin, end, step, chunk, flags);
}
