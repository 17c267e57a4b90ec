#include "streams/cores.h"

#include <sched.h>

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "base/error.h"

namespace sluice {

bool may_run_on(int cpu) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return cpu >= 0 && cpu < CPU_SETSIZE && sched_getaffinity(0, sizeof(allowed), &allowed) == 0 &&
         CPU_ISSET(cpu, &allowed);
}

void run_on(const std::vector<int>& cpus) {
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : cpus) CPU_SET(cpu, &wanted);
  static_cast<void>(sched_setaffinity(0, sizeof(wanted), &wanted));
}

int machine_cores() {
  if (const char* text = std::getenv("SLUICE_CORES"); text != nullptr && *text != '\0') {
    const std::string_view digits = text;
    int cores = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), cores);
    SLUICE_CHECK(error == std::errc() && end == digits.data() + digits.size() && cores > 0,
                 "SLUICE_CORES: bad number of cores: '{}'; must be a positive number", digits);
    return cores;
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && CPU_COUNT(&allowed) > 0) return CPU_COUNT(&allowed);
  const unsigned all = std::thread::hardware_concurrency();
  return all > 0 ? static_cast<int>(all) : 1;
}

}  // namespace sluice
