#pragma once
// Programs in processes of their own.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "aborts/support.h"

namespace sluice::test {

// Runs `program` in a new process, which has no other threads; returns how it ended. One that returns exits with 7; one
// that does not end is ended by its alarm.
template <class F>
std::string outcome_of(F&& program) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    program();
    std::exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return "hung";
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

}  // namespace sluice::test
