#pragma once
// Real processes, forked from a test.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <vector>

namespace sluice::test {

// Runs program(rank) in a process each. Returns each one's exit code, or 128 and its signal.
inline std::vector<int> in_processes(int size, const std::function<int(int rank)>& program) {
  std::vector<pid_t> children;
  for (int r = 0; r < size; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // never for ever
      std::_Exit(program(r));
    }
    children.push_back(child);
  }
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    codes.push_back(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  }
  return codes;
}

}  // namespace sluice::test
