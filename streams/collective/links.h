#pragma once
// One connection to each other rank, which carries everything between the two: bytes, signs of life, failures.
//
// Thread safety: everything, from any thread.
//
// Invariants:
// 1. Bytes are sent only when the other side has said where they go, so nothing is buffered and nothing is allocated
//    for their size. It may say so long before it wants them (grant()). Transfers between two ranks on one slot match
//    in their order.
// 2. A rank may miss a call (a set of transfers that its slots name): those of the others that want something of it in
//    this call fail, and nothing else does.
// 3. There is one failure of the job, the first; it names the rank at fault, and every rank is told. From then on no
//    transfer's memory is touched, every wait ends with it, and nothing more can be sent.
// 4. A connection is read by one thread at a time: by one that waits for something of it, so that what comes wakes whom
//    it is for, and else by the thread of the links. It is left to a reader for kReturnTime after it has what it waited
//    for: one that comes back meanwhile finds it as it was. Before it sleeps a reader looks for a moment.
// 5. A crashed rank is noticed by its closed connection, a stopped one by its silence for `heartbeat`. A rank that says
//    goodbye is missed only by those that still want something of it.
// 6. A grant is told together with the next message to that rank, or when somebody waits for its bytes: then after
//    kCompanyTime, and at once where that was in vain of late.
#include <poll.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/short_wait.h"
#include "streams/collective/socket.h"

namespace sluice::collective {

// Names the transfer's place: from the highest bit 23 bits channel, 1 bit set for point to point, 32 bits number of the
// call or tag, 8 bits transfer within the call. All ranks number the calls of a channel alike.
using Slot = uint64_t;
inline constexpr int kChannelShift = 41;
inline constexpr Slot kPointToPoint = 1ull << 40;
inline constexpr Slot call_slot(uint32_t channel, uint32_t number) {
  return static_cast<Slot>(channel) << kChannelShift | static_cast<Slot>(number) << 8;
}
inline constexpr Slot point_to_point_slot(uint32_t channel, uint32_t tag) {
  return call_slot(channel, tag) | kPointToPoint;
}

// A piece of memory on its way to or from another rank. REQUIRES: stays where it is until it has been waited for or
// withdrawn.
struct Transfer {
  bool sending = false;
  int peer = 0;
  Slot slot = 0;
  char* data = nullptr;
  uint64_t bytes = 0;
  bool pending = false;
  bool ahead = false;  // granted, and nobody waits for it yet
  Status status;       // of one that is no longer pending
};

class Links {
 public:
  // `sockets` by rank, as meet() returns them.
  Links(int rank, std::vector<Socket> sockets, std::chrono::milliseconds heartbeat);
  ~Links();  // leaves
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  // Both return at once. Throw the failure, if there is one.
  void send(Transfer& transfer, int peer, Slot slot, const void* data, uint64_t bytes);
  void receive(Transfer& transfer, int peer, Slot slot, void* data, uint64_t bytes);
  // Says where the bytes of a receive() to come go: its wait() takes the place of both. False, and nothing is said,
  // when that receive() would fail. Returns at once.
  bool grant(Transfer& transfer, int peer, Slot slot, void* data, uint64_t bytes) noexcept;
  // Forgets a transfer that was granted, if nobody waits for it. Its memory is not touched any more.
  void forget(Transfer& transfer) noexcept;
  bool done(const Transfer& transfer) const;
  // The other side has said where this goes, as far as is known here, and nothing is before it on the way.
  bool wanted(int peer, Slot slot);
  // Blocks until done. Throws the failure; a timeout or an interrupt becomes one.
  void wait(Transfer& transfer, std::chrono::milliseconds timeout);
  // A thread that waits sleeps at once from now on, without looking for a moment first.
  void forbid_looks() { short_wait_.forbid(); }
  // Gives up a transfer that may be pending, which is a failure of this rank.
  void withdraw(Transfer& transfer) noexcept;

  // This rank takes no part in a call of `ranks`: it fails there, saying so with `text`.
  void miss(Slot call, const std::vector<int>& ranks, const std::string& text);
  // Bytes that still come of this call, and of those before it on its channel, are of no use.
  void over(Slot call);
  // The same, and of all calls after it: the channel is not used any more.
  void close(Slot call) noexcept;
  // Makes it the failure of the job that this rank failed so. Nothing when there is one already.
  void fail(const std::string& text) noexcept;
  // Says goodbye, or what made this rank fail, to all others, and closes. Later calls do nothing.
  void leave(const std::string& failure) noexcept;
  // The failure, if there is one, and the rank at fault (else -1).
  Status failure() const;
  int failed_rank() const;

 private:
  enum class FrameKind : uint32_t { kAlive, kWant, kData, kMiss, kFail, kBye };
  struct Header {
    FrameKind kind = FrameKind::kAlive;
    int32_t rank = 0;    // kFail: at fault
    uint64_t slot = 0;   // kFail: the kind of error
    uint64_t bytes = 0;  // kWant: those that are wanted; else those that follow
  };
  struct Out {
    Header header;
    Transfer* transfer = nullptr;  // of kData; null: the payload is `text`
    std::string text;
  };
  static constexpr uint64_t kMostText = 64 << 10;
  // A message waits for company for less time than a message of its own would cost both sides.
  static constexpr std::chrono::microseconds kCompanyTime{200};
  static constexpr int kAlone = -20;  // once none has come, so many messages do not wait for it
  static constexpr std::chrono::microseconds kReturnTime{1000};
  struct Wanted {
    Slot slot;
    uint64_t bytes;
  };
  struct Peer {
    Socket socket;
    std::vector<Out> out;
    uint64_t written = 0;  // bytes of out.front()
    bool blocked = false;  // the socket takes no more for now
    bool patient = false;  // all of `out` waits for company
    int company = 0;       // not below 0: to wait for it pays
    Deadline patient_until;
    Header in;
    uint64_t read = 0;  // bytes of the frame that comes in
    Transfer* target = nullptr;
    std::string text;
    std::vector<Transfer*> sends, receives;  // waiting for the other side
    std::vector<Wanted> wanted;              // by the other side, of what is not here yet
    const Transfer* reader = nullptr;        // whose waiter reads
    bool asleep = false;                     // it waits for bytes, or for `nudge`, without the lock
    bool watched = true;                     // the thread of the links reads
    int waiters = 0;                         // beside the reader
    Deadline reader_left;
    Socket nudge;
    Deadline heard, sent;
    bool left = false;
  };

  class Reading;

  // All below REQUIRE mutex_ held, except serve() and serve_all().
  void serve();
  void serve_all();
  bool take(int rank);  // reads what there is, a bounded amount; false when there was nothing
  static uint64_t left_of(const Peer& peer);
  void accept(int rank, const char* bytes, uint64_t n);
  // False after `timeout`, or, of the second, when somebody else has to read.
  bool wait_done(std::unique_lock<std::mutex>& lock, Transfer& transfer, std::chrono::nanoseconds timeout);
  bool read_until_done(std::unique_lock<std::mutex>& lock, Transfer& transfer, std::chrono::nanoseconds timeout);
  bool may_read(const Peer& peer) const;
  void sleep(std::unique_lock<std::mutex>& lock, Peer& peer, std::chrono::nanoseconds longest);
  bool sleep_until_one(std::span<pollfd> ends, std::chrono::nanoseconds longest);
  std::chrono::nanoseconds patience(int rank, Deadline since);
  void complete(Transfer& transfer);
  void tell_all();
  static void wake(Peer& peer);
  void break_off() noexcept;
  void begin_frame(int rank);
  void end_frame(int rank);
  void put(int rank, Out out);
  void put_want(int rank, Slot slot, uint64_t bytes, bool patient);
  void put_data(int rank, Transfer& transfer, uint64_t wanted);
  void flush(int rank);
  void watch(int rank);
  void set_watched(int rank, bool watched);
  void expect_readers();
  void watch_abandoned();
  void watch_all();
  void lost(int rank);
  void beat(Deadline now);
  void fail_all(int culprit, ErrorKind kind, const std::string& text);
  void still_wanted(int left);
  void check_usable(int peer, Slot slot);
  void missed(Slot call, const Status& status);
  bool useless(Slot slot) const;
  bool useless_by_now(Slot slot) const;
  static void keep_copy(Out& out);
  std::string waited_for(const Transfer& transfer, std::chrono::milliseconds timeout) const;

  const int rank_;
  const std::chrono::milliseconds heartbeat_;
  ShortWait short_wait_;  // of readers
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;
  Status failure_;
  int failed_rank_ = -1;
  std::map<Slot, Status> missed_;      // calls that some rank takes no part in
  std::map<uint64_t, uint32_t> over_;  // per channel: the next call that matters
  bool leaving_ = false;
  std::vector<char> scratch_;  // for bytes that have come together
  Socket poll_, wake_, timer_;
  bool timer_runs_ = false;  // to see whether readers have come back
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sluice::collective
