#include "streams/collective/gloo.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <gloo/config.h>
#include <gloo/context.h>
#include <gloo/transport/address.h>
#include <gloo/transport/buffer.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

#include "base/shape.h"
#include "streams/collective/world.h"

namespace sluice::collective {
namespace {

using std::chrono::milliseconds;

// The members of a group, and what tells its transfers apart from those of others.
struct Group {
  std::shared_ptr<Links> links;
  std::vector<int> ranks;
  uint32_t channel = 0;
  milliseconds timeout;
  uint32_t number = 0;  // of the call under way, or the next

  Slot call() const { return call_slot(channel, number); }
};

// One piece of memory on its way; what has not arrived in the end is given up.
struct OnItsWay : Transfer {
  explicit OnItsWay(const Group& g) : group(g) {}
  ~OnItsWay() { group.links->withdraw(*this); }
  OnItsWay(const OnItsWay&) = delete;
  OnItsWay& operator=(const OnItsWay&) = delete;
  void send(int rank, Slot slot, const void* data, uint64_t bytes) {
    group.links->send(*this, group.ranks[rank], slot, data, bytes);
    group.links->wait(*this, group.timeout);
  }
  void receive(int rank, Slot slot, void* data, uint64_t bytes) {
    group.links->receive(*this, group.ranks[rank], slot, data, bytes);
    group.links->wait(*this, group.timeout);
  }
  const Group& group;
};

// Memory that Gloo sends from and receives into; several pieces may be on their way.
class Memory final : public gloo::transport::UnboundBuffer {
 public:
  Memory(const Group& group, void* data, size_t bytes) : UnboundBuffer(data, bytes), group_(group) {}
  ~Memory() override {
    for (Transfer& t : sends_) group_.links->withdraw(t);
    for (Transfer& t : receives_) group_.links->withdraw(t);
  }
  // The last 8 bits of Gloo's slots tell apart the transfers of a call.
  void send(int rank, uint64_t slot, size_t offset, size_t bytes) override {
    group_.links->send(sends_.emplace_back(), group_.ranks[rank], group_.call() | (slot & 0xff), at(offset),
                       bytes_of(offset, bytes));
  }
  void recv(int rank, uint64_t slot, size_t offset, size_t bytes) override {
    group_.links->receive(receives_.emplace_back(), group_.ranks[rank], group_.call() | (slot & 0xff), at(offset),
                          bytes_of(offset, bytes));
  }
  void recv(std::vector<int>, uint64_t, size_t, size_t) override {
    fail(ErrorKind::kUnsupported, "distributed: Gloo wants to receive from any rank; transfers here name theirs");
  }
  bool waitSend(int* rank, milliseconds) override { return wait(sends_, rank); }
  bool waitRecv(int* rank, milliseconds) override { return wait(receives_, rank); }
  void abortWaitSend() override {}  // nobody waits while someone else could call these
  void abortWaitRecv() override {}

 private:
  char* at(size_t offset) const { return static_cast<char*>(ptr) + offset; }
  size_t bytes_of(size_t offset, size_t bytes) const { return bytes == kUnspecifiedByteCount ? size - offset : bytes; }
  // For the oldest of them. Gloo counts completions, and waits for as many as it has begun.
  bool wait(std::deque<Transfer>& transfers, int* rank) {
    Transfer& oldest = transfers.front();
    group_.links->wait(oldest, group_.timeout);
    if (rank != nullptr)
      *rank = static_cast<int>(std::find(group_.ranks.begin(), group_.ranks.end(), oldest.peer) - group_.ranks.begin());
    transfers.pop_front();
    return true;
  }

  const Group& group_;
  std::deque<Transfer> sends_, receives_;
};

[[noreturn]] void own_connection() {
  fail(ErrorKind::kUnsupported, "distributed: Gloo wants a connection of its own; it is given ours");
}

// Gloo asks whether there is a connection to a rank; what it sends goes through Memory.
class Pair final : public gloo::transport::Pair {
 public:
  const gloo::transport::Address& address() const override { own_connection(); }
  void connect(const std::vector<char>&) override { own_connection(); }
  void close() override {}
  void setSync(bool, bool) override { own_connection(); }
  std::unique_ptr<gloo::transport::Buffer> createSendBuffer(int, void*, size_t) override { own_connection(); }
  std::unique_ptr<gloo::transport::Buffer> createRecvBuffer(int, void*, size_t) override { own_connection(); }
  void send(gloo::transport::UnboundBuffer*, uint64_t, size_t, size_t) override { own_connection(); }
  void recv(gloo::transport::UnboundBuffer*, uint64_t, size_t, size_t) override { own_connection(); }
};

class Transport final : public gloo::transport::Context {
 public:
  Transport(const Group& group, int rank)
      : gloo::transport::Context(rank, static_cast<int>(group.ranks.size())), group_(group) {
    for (int r = 0; r < size; ++r) createPair(r);
  }
  std::unique_ptr<gloo::transport::Pair>& createPair(int rank) override {
    return pairs_[rank] = std::make_unique<Pair>();
  }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data, size_t bytes) override {
    return std::make_unique<Memory>(group_, data, bytes);
  }

 private:
  const Group& group_;
};

class Context final : public gloo::Context {
 public:
  Context(const Group& group, int rank) : gloo::Context(rank, static_cast<int>(group.ranks.size())) {
    transportContext_ = std::make_shared<Transport>(group, rank);
    timeout_ = group.timeout;
  }
};

class GlooCommunicator final : public Communicator {
 public:
  explicit GlooCommunicator(Group group)
      : group_(std::move(group)),
        rank_(static_cast<int>(std::find(group_.ranks.begin(), group_.ranks.end(), group_.links->rank()) -
                               group_.ranks.begin())),
        context_(std::make_shared<Context>(group_, rank_)) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_.ranks.size()); }
  milliseconds timeout() const override { return group_.timeout; }
  Status failure() const override { return group_.links->failure(); }
  void fail(const std::string& text) noexcept override { group_.links->fail(text); }

  void barrier() override {
    named("barrier", [&] {
      const Call call(*this);
      gloo::BarrierOptions options(context_);
      gloo::barrier(options);
    });
  }

  void all_reduce(void* data, int64_t elements, DType dtype, ReduceOp op) override {
    named("all_reduce", [&] {
      const ReduceFunction reduce = reduce_function(op, dtype);
      const Call call(*this);
      if (elements == 0) return;
      gloo::AllreduceOptions options(context_);
      set_output(options, data, elements, dtype);
      options.setReduceFunction(reduce);
      gloo::allreduce(options);
      if (op == ReduceOp::kAverage) divide(data, dtype, elements, size());
    });
  }

  void all_gather(const void* part, void* parts, uint64_t bytes) override {
    named("all_gather", [&] {
      const Call call(*this);
      if (bytes == 0) return;
      gloo::AllgatherOptions options(context_);
      options.setInput<char>(static_cast<char*>(const_cast<void*>(part)), bytes);
      options.setOutput<char>(static_cast<char*>(parts), checked_mul(bytes, static_cast<uint64_t>(size())));
      gloo::allgather(options);
    });
  }

  // Every rank gets its part of every other and adds them up in the order of ranks: as few bytes as can be, and bits
  // that do not depend on how.
  void reduce_scatter(const void* parts, void* part, void* workspace, int64_t elements, DType dtype,
                      ReduceOp op) override {
    named("reduce_scatter", [&] {
      const ReduceFunction reduce = reduce_function(op, dtype);
      const uint64_t bytes = static_cast<uint64_t>(elements) * dtype_size(dtype);
      const Call call(*this);
      exchange(parts, workspace, bytes);
      if (bytes > 0) std::memcpy(part, workspace, bytes);
      for (int r = 1; r < size(); ++r)
        reduce(part, part, static_cast<char*>(workspace) + static_cast<uint64_t>(r) * bytes,
               static_cast<size_t>(elements));
      if (op == ReduceOp::kAverage) divide(part, dtype, elements, size());
    });
  }

  void all_to_all(const void* parts_in, void* parts_out, uint64_t bytes) override {
    named("all_to_all", [&] {
      const Call call(*this);
      exchange(parts_in, parts_out, bytes);
    });
  }

  void broadcast(void* data, uint64_t bytes, int root) override {
    named("broadcast", [&] {
      check_rank(root);
      const Call call(*this);
      if (bytes == 0) return;
      gloo::BroadcastOptions options(context_);
      options.setOutput<char>(static_cast<char*>(data), bytes);
      options.setRoot(root);
      gloo::broadcast(options);
    });
  }

  void transfer(void* data, uint64_t bytes, int from) override {
    named("transfer", [&] {
      check_rank(from);
      SLUICE_CHECK(size() == 2, "a group of {} ranks; it must be of two", size());
      const Call call(*this);
      if (granted_ > 0) return receive_granted(data, bytes);
      OnItsWay memory(group_);
      if (rank_ == from)
        memory.send(1 - rank_, group_.call(), data, bytes);
      else
        memory.receive(from, group_.call(), data, bytes);
    });
  }

  bool grant(void* data, uint64_t bytes, int from) noexcept override {
    if (granted_ == kMostGranted || from == rank_) return false;
    const auto ahead = static_cast<uint32_t>(granted_);
    Transfer& next = grants_[(group_.number + ahead) % kMostGranted];
    const Slot call = call_slot(group_.channel, group_.number + ahead);
    if (!group_.links->grant(next, group_.ranks[from], call, data, bytes)) return false;
    ++granted_;
    return true;
  }
  int granted() const override { return granted_; }
  void take_back() noexcept override {
    for (; granted_ > 0; --granted_)
      group_.links->forget(grants_[(group_.number + static_cast<uint32_t>(granted_) - 1) % kMostGranted]);
    group_.links->close(group_.call());
  }

  bool transfer_waits(uint64_t bytes, int from) const override {
    constexpr uint64_t kPrompt = 16 << 10;  // what a connection takes at once, and fast
    if (from != rank_) return granted_ == 0 || !group_.links->done(grants_[group_.number % kMostGranted]);
    return bytes > kPrompt || !group_.links->wanted(group_.ranks[1 - rank_], group_.call());
  }

  void send(const void* data, uint64_t bytes, int to, uint32_t tag) override {
    named("send", [&] {
      check_other(to);
      OnItsWay(group_).send(to, point_to_point_slot(group_.channel, tag), data, bytes);
    });
  }

  void receive(void* data, uint64_t bytes, int from, uint32_t tag) override {
    named("receive", [&] {
      check_other(from);
      OnItsWay(group_).receive(from, point_to_point_slot(group_.channel, tag), data, bytes);
    });
  }

  void miss(const std::string& text) override {
    group_.links->miss(group_.call(), group_.ranks, text);
    end_call();
  }

 private:
  static constexpr int kMostGranted = 8;

  void end_call() {
    if (granted_ > 0) {
      group_.links->forget(grants_[group_.number % kMostGranted]);
      --granted_;
    }
    group_.links->over(group_.call());
    ++group_.number;
  }

  void receive_granted(void* data, uint64_t bytes) {
    Transfer& next = grants_[group_.number % kMostGranted];
    SLUICE_CHECK_KIND(kRuntime, next.data == data && next.bytes == bytes,
                      "{} bytes at {} were granted for it; got {} at {}", next.bytes,
                      static_cast<const void*>(next.data), bytes, data);
    group_.links->wait(next, group_.timeout);
  }

  // While one lives, this rank is in a call. All ranks number their calls alike.
  struct Call {
    explicit Call(GlooCommunicator& c) : communicator(c) {}
    ~Call() { communicator.end_call(); }
    GlooCommunicator& communicator;
  };

  // Errors begin with the call's name.
  template <class F>
  void named(const char* call, F&& f) {
    try {
      f();
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", call, error.what()));
    } catch (const gloo::EnforceNotMet& error) {
      throw Error(ErrorKind::kRuntime, fmt::format("{}: {}", call, error.what()));
    }
  }

  // Gloo takes the element's size from a type.
  template <class Options>
  static void set_output(Options& options, void* data, int64_t elements, DType dtype) {
    const auto n = static_cast<size_t>(elements);
    switch (dtype_size(dtype)) {
      case 1: return options.template setOutput<uint8_t>(static_cast<uint8_t*>(data), n);
      case 2: return options.template setOutput<uint16_t>(static_cast<uint16_t*>(data), n);
      case 4: return options.template setOutput<uint32_t>(static_cast<uint32_t*>(data), n);
      default: return options.template setOutput<uint64_t>(static_cast<uint64_t*>(data), n);
    }
  }

  void exchange(const void* parts_in, void* parts_out, uint64_t bytes) {
    const uint64_t all = checked_mul(bytes, static_cast<uint64_t>(size()));
    if (all == 0) return;
    gloo::AlltoallOptions options(context_);
    options.setInput<char>(static_cast<char*>(const_cast<void*>(parts_in)), all);
    options.setOutput<char>(static_cast<char*>(parts_out), all);
    gloo::alltoall(options);
  }

  void check_rank(int rank) const {
    SLUICE_CHECK_KIND(kIndex, rank >= 0 && rank < size(), "rank {} is not in the group; ranks are 0 to {}", rank,
                      size() - 1);
  }
  void check_other(int rank) const {
    check_rank(rank);
    SLUICE_CHECK(rank != rank_, "rank {} is this rank itself; it must be another", rank);
  }

  Group group_;
  const int rank_;
  const std::shared_ptr<Context> context_;
  std::array<Transfer, kMostGranted> grants_;  // by number
  int granted_ = 0;                            // from group_.number on
};

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(std::shared_ptr<Links> links, std::vector<int> ranks,
                                                     uint32_t channel, milliseconds timeout) {
  return std::make_unique<GlooCommunicator>(Group{std::move(links), std::move(ranks), channel, timeout});
}

std::vector<LibraryVersion> collective_libraries() {
  return {{"Gloo", fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH)}};
}

}  // namespace sluice::collective
