#include "kernels/cpu/support/core_use.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <string_view>

#include "streams/cores.h"

namespace sluice {
namespace {

// Reads as much of a file as fits, without allocating.
std::string_view read_file(const char* path, char* buffer, size_t size) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  size_t filled = 0;
  for (ssize_t got; filled < size && (got = ::read(file, buffer + filled, size - filled)) > 0;)
    filled += static_cast<size_t>(got);
  close(file);
  return {buffer, filled};
}

// Takes a number, and the spaces before it, off the text.
bool take_number(std::string_view* text, int64_t* number) {
  text->remove_prefix(std::min(text->find_first_not_of(' '), text->size()));
  const auto [rest, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(rest - text->data()));
  return true;
}

}  // namespace

bool ThreadTime::read(ThreadTime* time) {
  char buffer[96];
  std::string_view text = read_file("/proc/thread-self/schedstat", buffer, sizeof buffer);
  return take_number(&text, &time->had_ns) && take_number(&text, &time->waited_ns);
}

bool CoreUse::read(CoreUse* use) {
  // user, nice, system, idle, iowait, irq, softirq, steal: of them idle and iowait are nobody's.
  constexpr int kFields = 8, kIdle = 3, kIoWait = 4;
  static const int64_t tick_ns = 1'000'000'000 / sysconf(_SC_CLK_TCK);
  char buffer[1 << 15];
  std::string_view text = read_file("/proc/stat", buffer, sizeof buffer);
  int64_t all = 0, used = 0;
  for (; text.starts_with("cpu"); text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1)) {
    std::string_view line = text.substr(3, text.find('\n') - 3);
    int64_t cpu = 0;
    if (line.starts_with(' ') || !take_number(&line, &cpu) || !may_run_on(static_cast<int>(cpu))) continue;
    for (int field = 0; field < kFields; ++field) {
      int64_t ticks = 0;
      if (!take_number(&line, &ticks)) return false;
      all += ticks;
      if (field != kIdle && field != kIoWait) used += ticks;
    }
  }
  timespec own;
  if (all == 0 || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) != 0) return false;
  use->all_ns = all * tick_ns;
  use->others_ns = used * tick_ns - (static_cast<int64_t>(own.tv_sec) * 1'000'000'000 + own.tv_nsec);
  return true;
}

}  // namespace sluice
