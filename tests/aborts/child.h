#pragma once
// Programs in processes of their own.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "aborts/support.h"

namespace sluice::test {

// Runs `program` in a new process, which has no other threads; returns how it ended. One that returns exits with 7.
template <class F>
std::string outcome_of(F&& program) {
  const pid_t child = fork();
  if (child == 0) {
    program();
    std::exit(7);
  }
  const auto start = Clock::now();
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (seconds_since(start) > 20) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return "hung";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

}  // namespace sluice::test
