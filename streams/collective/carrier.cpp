#include "streams/collective/carrier.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/mutex.h"
#include "base/shape.h"

namespace sluice::collective {
namespace {

struct Carriers {
  Mutex mutex;
  std::map<std::string, MakeCarrier> makers SLUICE_GUARDED_BY(mutex);
};
Carriers& carriers() {
  static auto* const made = new Carriers;  // carriers may be asked for while the process ends
  return *made;
}

enum class MessageKind : uint8_t { kData, kMissed };  // the first byte of a message

class MessageCommunicator final : public Communicator {
 public:
  MessageCommunicator(std::shared_ptr<Carrier> carrier, const WorldOptions& options, std::vector<int> ranks,
                      uint32_t channel)
      : carrier_(std::move(carrier)),
        ranks_(std::move(ranks)),
        timeout_(options.timeout),
        channel_(channel),
        rank_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), options.rank) - ranks_.begin())) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  std::chrono::milliseconds timeout() const override { return timeout_; }
  Status failure() const override { return carrier_->failure(); }
  void fail(const std::string& text) noexcept override { carrier_->fail(text); }

  void barrier() override {
    named("barrier", [&] {
      for (int r = 0; r < size(); ++r) give(r, nullptr, 0);
      for (int r = 0; r < size(); ++r) take(r, nullptr, 0);
    });
  }
  void all_reduce(void* data, int64_t elements, DType dtype, ReduceOp op) override {
    const uint64_t bytes = checked_mul(static_cast<uint64_t>(elements), dtype_size(dtype));
    named("all_reduce", [&] {
      const ReduceFunction reduce = reduce_function(op, dtype);
      std::vector<std::byte> parts(checked_mul(bytes, static_cast<uint64_t>(size())));
      exchange_same(data, parts.data(), bytes);
      if (bytes > 0) std::memcpy(data, parts.data(), bytes);
      for (int r = 1; r < size(); ++r)
        reduce(data, data, parts.data() + static_cast<uint64_t>(r) * bytes, static_cast<size_t>(elements));
      if (op == ReduceOp::kAverage) divide(data, dtype, elements, size());
    });
  }
  void all_gather(const void* part, void* parts, uint64_t part_bytes) override {
    named("all_gather", [&] { exchange_same(part, parts, part_bytes); });
  }
  void reduce_scatter(const void* parts, void* part, void* workspace, int64_t elements, DType dtype,
                      ReduceOp op) override {
    const uint64_t bytes = checked_mul(static_cast<uint64_t>(elements), dtype_size(dtype));
    named("reduce_scatter", [&] {
      const ReduceFunction reduce = reduce_function(op, dtype);
      exchange(parts, workspace, bytes);
      if (bytes > 0) std::memcpy(part, workspace, bytes);
      for (int r = 1; r < size(); ++r)
        reduce(part, part, static_cast<const std::byte*>(workspace) + static_cast<uint64_t>(r) * bytes,
               static_cast<size_t>(elements));
      if (op == ReduceOp::kAverage) divide(part, dtype, elements, size());
    });
  }
  void all_to_all(const void* parts_in, void* parts_out, uint64_t part_bytes) override {
    named("all_to_all", [&] { exchange(parts_in, parts_out, part_bytes); });
  }
  void broadcast(void* data, uint64_t bytes, int root) override {
    named("broadcast", [&] {
      check_rank(root);
      if (rank_ == root)
        for (int r = 0; r < size(); ++r) give(r, data, bytes);
      else
        take(root, data, bytes);
    });
  }
  void transfer(void* data, uint64_t bytes, int from) override {
    named("transfer", [&] {
      check_rank(from);
      SLUICE_CHECK(size() == 2, "a group of {} ranks; must be two", size());
      if (rank_ == from)
        give(1 - from, data, bytes);
      else
        take(from, data, bytes);
    });
  }
  void miss(const std::string& text) override {
    std::vector<std::byte> message(1 + text.size(), static_cast<std::byte>(MessageKind::kMissed));
    std::memcpy(message.data() + 1, text.data(), text.size());
    for (int r = 0; r < size(); ++r)
      if (r != rank_) carrier_->send(ranks_[static_cast<size_t>(r)], key_of_call(), message);
    ++number_;
  }
  void send(const void* data, uint64_t bytes, int to, uint32_t tag) override {
    named("send", false, [&] {
      check_other(to);
      put(to, key_of(true, tag), data, bytes);
    });
  }
  void receive(void* data, uint64_t bytes, int from, uint32_t tag) override {
    named("receive", false, [&] {
      check_other(from);
      get(from, key_of(true, tag), data, bytes);
    });
  }

 private:
  // Channels are below 2^23, and numbers wrap around long after their messages were received.
  uint64_t key_of(bool tagged, uint32_t number) const {
    return static_cast<uint64_t>(channel_) << 33 | static_cast<uint64_t>(tagged) << 32 | number;
  }
  uint64_t key_of_call() const { return key_of(false, number_); }

  void put(int to, uint64_t key, const void* data, uint64_t bytes) {
    std::vector<std::byte> message(1 + bytes);
    message[0] = static_cast<std::byte>(MessageKind::kData);
    if (bytes > 0) std::memcpy(message.data() + 1, data, bytes);
    carrier_->send(ranks_[static_cast<size_t>(to)], key, std::move(message));
  }
  void get(int from, uint64_t key, void* data, uint64_t bytes) {
    const std::vector<std::byte> message = carrier_->receive(ranks_[static_cast<size_t>(from)], key);
    SLUICE_CHECK_KIND(kRuntime, !message.empty(), "rank {} has sent an empty message; it must begin with its kind",
                      from);
    if (message[0] == static_cast<std::byte>(MessageKind::kMissed)) {
      const std::string text(reinterpret_cast<const char*>(message.data()) + 1, message.size() - 1);
      sluice::fail(ErrorKind::kRuntime, "{}", text);
    }
    SLUICE_CHECK_KIND(kRuntime, message.size() == 1 + bytes, "rank {} has sent {} bytes; must be {}", from,
                      message.size() - 1, bytes);
    if (bytes > 0) std::memcpy(data, message.data() + 1, bytes);
  }
  // In the call under way; what is for this rank itself stays here.
  void give(int to, const void* data, uint64_t bytes) {
    if (to != rank_) put(to, key_of_call(), data, bytes);
  }
  void take(int from, void* data, uint64_t bytes) {
    if (from != rank_) get(from, key_of_call(), data, bytes);
  }

  void exchange(const void* in, void* out, uint64_t bytes) {
    const auto* const from = static_cast<const std::byte*>(in);
    auto* const to = static_cast<std::byte*>(out);
    const auto at = [&](int r) { return static_cast<uint64_t>(r) * bytes; };
    for (int r = 0; r < size(); ++r) give(r, from + at(r), bytes);
    if (bytes > 0) std::memmove(to + at(rank_), from + at(rank_), bytes);
    for (int r = 0; r < size(); ++r) take(r, to + at(r), bytes);
  }
  void exchange_same(const void* part, void* parts, uint64_t bytes) {
    auto* const to = static_cast<std::byte*>(parts);
    for (int r = 0; r < size(); ++r) give(r, part, bytes);
    if (bytes > 0) std::memmove(to + static_cast<uint64_t>(rank_) * bytes, part, bytes);
    for (int r = 0; r < size(); ++r) take(r, to + static_cast<uint64_t>(r) * bytes, bytes);
  }

  // Errors begin with the call's name. All ranks number their calls alike, those that fail included.
  template <class F>
  void named(const char* call, F&& f) {
    named(call, true, f);
  }
  template <class F>
  void named(const char* call, bool counts, F&& f) {
    try {
      carrier_->failure().throw_if_error();
      f();
    } catch (const Error& error) {
      if (counts) ++number_;
      throw Error(error.kind(), fmt::format("{}: {}", call, error.what()));
    }
    if (counts) ++number_;
  }

  void check_rank(int rank) const {
    SLUICE_CHECK_KIND(kIndex, rank >= 0 && rank < size(), "rank {} is not in the group; ranks are 0 to {}", rank,
                      size() - 1);
  }
  void check_other(int rank) const {
    check_rank(rank);
    SLUICE_CHECK(rank != rank_, "rank {} is this rank itself; it must be another", rank);
  }

  const std::shared_ptr<Carrier> carrier_;
  const std::vector<int> ranks_;
  const std::chrono::milliseconds timeout_;
  const uint32_t channel_;
  const int rank_;
  uint32_t number_ = 0;  // of the call under way, or the next
};

}  // namespace

void register_carrier(const std::string& name, MakeCarrier make) {
  Carriers& r = carriers();
  const MutexLock lock(r.mutex);
  SLUICE_CHECK(name != kGloo && !name.empty() && r.makers.emplace(name, std::move(make)).second,
               "distributed: carrier '{}': the name is taken; register it by another one", name);
}

std::shared_ptr<Carrier> make_carrier(const WorldOptions& options) {
  MakeCarrier make;
  {
    Carriers& r = carriers();
    const MutexLock lock(r.mutex);
    std::string known = kGloo;
    for (const auto& [name, maker] : r.makers) known += ", " + name;
    const auto found = r.makers.find(options.carrier);
    SLUICE_CHECK(found != r.makers.end(), "distributed: carrier '{}': there is none such; there are {}",
                 options.carrier, known);
    make = found->second;
  }
  SLUICE_CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size,
               "distributed: rank {} of {}; it must be from 0 to {}", options.rank, options.size, options.size - 1);
  std::shared_ptr<Carrier> carrier = make(options);
  SLUICE_CHECK_KIND(kRuntime, carrier != nullptr, "distributed: carrier '{}': it was not made", options.carrier);
  return carrier;
}

std::unique_ptr<Communicator> make_message_communicator(std::shared_ptr<Carrier> carrier, const WorldOptions& options,
                                                        std::vector<int> ranks, uint32_t channel) {
  std::unique_ptr<Communicator> own = carrier->communicator(ranks, channel);
  if (own != nullptr) return own;
  return std::make_unique<MessageCommunicator>(std::move(carrier), options, std::move(ranks), channel);
}

}  // namespace sluice::collective
