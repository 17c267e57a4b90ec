#pragma once
// Threads are started here alone, so that whoever asked for one is told what could not be had.
#include <pthread.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace sluice {

// A thread that runs `body`, called `name` in tools (15 characters at most). Throws kRuntime, naming `where`, when the
// system starts no more threads.
template <class F>
std::thread start_thread(const std::string& where, const char* name, F&& body) {
  try {
    std::thread thread(std::forward<F>(body));
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& error) {
    fail(ErrorKind::kRuntime,
         "{}: its thread could not be started: {}; use fewer streams or engines, or raise the limit of threads of this "
         "process",
         where, error.what());
  }
}

}  // namespace sluice
