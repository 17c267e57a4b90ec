#pragma once
// Threads for work that takes long, which connections are not to wait for.
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <type_traits>

#include "serving/http/turns.h"

namespace sluice::serving {

// Thread-safe. Whoever has work waits behind everybody else between two turns of it, so one connection's work, which is
// one thing at a time, takes as long for the others as one turn.
class Workers {
 public:
  template <class T>
  using Task = boost::asio::awaitable<T>;

  explicit Workers(int threads) : pool_(static_cast<size_t>(threads)) {}
  void join() { pool_.join(); }
  int waiting() const { return waiting_; }  // turns that have been asked for and are not over

  // Returns the result of `work`, which runs on one of the threads; the coroutine goes on where it was.
  template <class Work>
  Task<std::invoke_result_t<Work>> run(Work work) {
    using Result = std::invoke_result_t<Work>;
    ++waiting_;
    co_return co_await boost::asio::co_spawn(
        pool_,
        [this, &work]() -> Task<Result> {
          const Leave leave(waiting_);
          co_return work();
        },
        boost::asio::use_awaitable);
  }
  // Here, where it does not take long.
  template <class Work>
  Task<std::invoke_result_t<Work>> run_if(bool is_long, Work work) {
    if (!is_long) co_return work();
    co_return co_await run(std::move(work));
  }
  Task<void> run(Turns turns) {
    for (bool more = true; more;) more = co_await run([&turns] { return turns.next(); });
  }

 private:
  struct Leave {
    explicit Leave(std::atomic<int>& count) : count(count) {}
    ~Leave() { --count; }
    Leave(const Leave&) = delete;
    Leave& operator=(const Leave&) = delete;
    std::atomic<int>& count;
  };

  std::atomic<int> waiting_{0};
  boost::asio::thread_pool pool_;
};

}  // namespace sluice::serving
