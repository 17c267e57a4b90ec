#pragma once
// Tests of suites named Soak* repeat one check on many inputs: some in `make test`, all in `make test-long`
// (SLUICE_LONG=1). Each says how many it did; `make test` and `make test-long` print these lines at their end.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace sluice::test {

inline bool long_run() {
  const char* value = std::getenv("SLUICE_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}
// Sanitizers slow everything down by an order of magnitude.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kSlowdown = 10;
#else
inline constexpr int kSlowdown = 1;
#endif
// How often to repeat.
inline int64_t repetitions(int64_t quick, int64_t full) {
  const int64_t n = long_run() ? full : quick;
  return n < kSlowdown ? n : n / kSlowdown;
}
// "count: <what>: <n> <unit>", for example report_count("explorer", 1200, "plans").
inline void report_count(const std::string& what, int64_t n, const std::string& unit) {
  std::printf("count: %s: %lld %s\n", what.c_str(), static_cast<long long>(n), unit.c_str());
  std::fflush(stdout);
}

// A progress line on a terminal; silent elsewhere.
class Progress {
 public:
  Progress(std::string what, int64_t total) : what_(std::move(what)), total_(total), shown_(isatty(2) != 0) {}
  ~Progress() {
    if (shown_) std::fprintf(stderr, "\r\033[K");
  }
  void step() {
    if (++done_ % every() == 0 && shown_) {
      std::fprintf(stderr, "\r%s: %lld of %lld", what_.c_str(), static_cast<long long>(done_),
                   static_cast<long long>(total_));
    }
  }

 private:
  int64_t every() const { return total_ < 200 ? 1 : total_ / 200; }
  std::string what_;
  int64_t total_, done_ = 0;
  bool shown_;
};

}  // namespace sluice::test
