#pragma once
// The program as a user calls it.
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace sluice::plan_viz {

struct Result {
  int status = 0;
  std::string text;  // both streams
};

// `command` is the shell's; PLAN_VIZ is where the program is.
inline Result run_command(const std::string& command) {
  Result result;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) result.text.append(buffer, n);
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

}  // namespace sluice::plan_viz
