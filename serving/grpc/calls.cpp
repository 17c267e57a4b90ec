#include "serving/grpc/calls.h"

#include <fmt/format.h>

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "serving/core/log.h"
#include "serving/core/trace.h"
#include "serving/grpc/grpc_codec.h"
#include "serving/grpc/messages.h"

namespace sluice::serving {

namespace {

// It goes into a header, of which clients take 8 KiB, and where a byte may become three.
std::string clipped(std::string text) {
  constexpr size_t kMost = 2048;
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;  // not within a character
  text.resize(end);
  return text + " ...";
}

}  // namespace

grpc::Status status_of(const Error& error) {
  const auto code = [&] {
    switch (error.code()) {
      case Code::kInvalidArgument:
      case Code::kTooLarge: return grpc::StatusCode::INVALID_ARGUMENT;
      case Code::kNotFound: return grpc::StatusCode::NOT_FOUND;
      case Code::kAlreadyExists: return grpc::StatusCode::ALREADY_EXISTS;
      case Code::kUnsupported: return grpc::StatusCode::UNIMPLEMENTED;
      case Code::kForbidden: return grpc::StatusCode::PERMISSION_DENIED;
      case Code::kOverloaded:
      case Code::kUnavailable: return grpc::StatusCode::UNAVAILABLE;
      case Code::kTimeout: return grpc::StatusCode::DEADLINE_EXCEEDED;
      case Code::kCancelled: return grpc::StatusCode::CANCELLED;
      case Code::kInternal: return grpc::StatusCode::INTERNAL;
    }
    return grpc::StatusCode::UNKNOWN;
  }();
  return {code, clipped(error.what())};
}

grpc::Status status_of_current() {
  try {
    throw;
  } catch (const Error& error) {
    return status_of(error);
  } catch (const std::bad_alloc&) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "server: out of memory"};
  } catch (...) {
    return {grpc::StatusCode::INTERNAL, "server: an unexpected error; its log says more"};
  }
}

void Cancellation::is(std::shared_ptr<RequestHandle> handle) {
  {
    const std::lock_guard lock(mutex_);
    handle_ = handle;
    if (!cancelled_) return;
  }
  if (handle != nullptr) handle->cancel();
}

void Cancellation::cancel() {
  std::shared_ptr<RequestHandle> handle;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    handle = handle_;
  }
  if (handle != nullptr) handle->cancel();
}

namespace {

// The bytes that an answer will take as a message, beside its tensors.
uint64_t memory_of(const InferResponse& response) {
  constexpr uint64_t kOfMessage = 1024, kOfEntry = 256;
  uint64_t bytes = kOfMessage + response.id.size();
  for (const Tensor& output : response.outputs) bytes += kOfEntry + output.name.size() + output.bytes;
  for (const auto& [name, value] : response.parameters) {
    const auto* const text = std::get_if<std::string>(&value);
    bytes += kOfEntry + name.size() + (text == nullptr ? 0 : text->size());
  }
  return bytes;
}

Code code_of_current() {
  try {
    throw;
  } catch (const Error& error) {
    return error.code();
  } catch (...) {
    return Code::kInternal;
  }
}

// Reads a request, of whose message nothing is left behind this. Throws Error.
InferRequest request_of(const grpc::ByteBuffer& bytes, const CallContext& with, const MemoryPtr& share,
                        std::string* id) {
  const auto received = Clock::now();
  Held counted;
  inference::ModelInferRequest message;
  InferRequest request;
  try {
    read_message(bytes, message, share, counted);
    if (id != nullptr) *id = message.id();
    request = request_of(message, with.server, with.buffers, share);
  } catch (...) {
    with.server.refused(message.model_name(), message.model_version(), code_of_current(), received);
    throw;
  }
  request.received = received;
  request.read = Clock::now();
  return request;
}

// Lives until OnDone, which comes after Finish, which comes with the answer.
class InferCall final : public grpc::ServerUnaryReactor {
 public:
  InferCall(grpc::CallbackServerContext& context, const CallContext& with, grpc::ByteBuffer* response)
      : here_(with.open), context_(context), response_(response), memory_(with.share()) {}

  void start(const CallContext& with, const grpc::ByteBuffer& message) {
    const std::shared_ptr<Cancellation> cancellation = cancellation_;  // this may be gone when infer() returns
    InferRequest request;
    try {
      request = request_of(message, with, memory_, nullptr);
    } catch (...) {
      return Finish(status_of_current());
    }
    const auto parent = context_.client_metadata().find("traceparent");
    if (parent != context_.client_metadata().end())
      request.trace_parent.assign(parent->second.data(), parent->second.size());
    shared_ = shared_outputs(request);
    cancellation->is(with.server.infer(std::move(request), [this](InferResponse response, bool last) {
      if (last) return answer(std::move(response));
      several_ = true;
      const std::shared_ptr<Cancellation> held = cancellation_;  // this may be gone when it is answered
      held->cancel();                                            // nobody will read the others
    }));
  }

  void OnCancel() override { cancellation_->cancel(); }
  void OnDone() override {
    if (trace_ != nullptr) trace_->stamp(Stamp::kSendEnd);
    delete this;
  }

 private:
  void answer(InferResponse response) {
    trace_ = std::move(response.trace);
    if (trace_ != nullptr) trace_->stamp(Stamp::kSendStart);
    if (several_)
      return Finish({grpc::StatusCode::UNIMPLEMENTED,
                     "infer: model '" + response.model + "' gives several responses; use ModelStreamInfer"});
    if (response.error) {
      // The time that gRPC's clients wait before they try again, where they are told to.
      if (const auto after = response.error->retry_after())
        context_.AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(after->count()));
      return Finish(status_of(*response.error));
    }
    try {
      const Held counted(memory_, memory_of(response));
      inference::ModelInferResponse message;
      fill(message, response, shared_);
      response.outputs.clear();
      write_message(message, *response_, memory_, held_);
    } catch (...) {
      return Finish(status_of_current());
    }
    Finish(grpc::Status::OK);
  }

  const OpenCalls::Here here_;
  grpc::CallbackServerContext& context_;
  grpc::ByteBuffer* const response_;
  const MemoryPtr memory_;
  Held held_;  // by the response, until the client has it
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
  std::map<std::string, SharedRegion> shared_;
  std::shared_ptr<RequestTrace> trace_;
  std::atomic<bool> several_{false};
};

// Reads while fewer than `most_` requests are unanswered, writes one response at a time, and finishes when all that was
// read is answered and written. Until then responses may use it; OnDone, which deletes it, may come as soon as Finish
// is called, so that is the last thing that anybody does, and without the lock. A server that ends its streams may have
// it longer.
class StreamCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>, public OpenCalls::Stream {
 public:
  StreamCall(grpc::CallbackServerContext& context, const CallContext& with, size_t most)
      : context_(context), with_(with), most_(most), unread_(with.memory, with.most_unread) {
    StartRead(&message_);
  }

  void end() override {
    proceed([this] { ending_ = true; });
  }
  void OnReadDone(bool ok) override {
    if (ok) start();
    proceed([&] {
      reading_ = false;
      if (!ok) ended_ = true;
    });
  }
  void OnWriteDone(bool ok) override {
    proceed([&] {
      writing_ = false;
      pop();
      if (!ok) broken_ = true;
    });
  }
  void OnCancel() override {
    std::vector<std::shared_ptr<Cancellation>> running;
    {
      const std::lock_guard lock(mutex_);
      broken_ = ended_ = true;
      for (const auto& [number, one] : running_) running.push_back(one.cancellation);
    }
    for (const auto& cancellation : running) cancellation->cancel();
    proceed([] {});
  }
  void OnDone() override { with_.open.remove(this); }

 private:
  struct Write {
    grpc::ByteBuffer message;
    std::shared_ptr<RequestTrace> trace;
    uint64_t bytes = 0;
  };
  struct Running {
    std::shared_ptr<Cancellation> cancellation;
  };

  void start() {
    const auto cancellation = std::make_shared<Cancellation>();
    const MemoryPtr share = with_.share();
    std::string id;
    uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;  // it comes too late
      number = ++started_;
      running_.emplace(number, Running{cancellation});
      if (broken_) cancellation->cancel();  // of no request yet: whatever it will be of
    }
    InferRequest request;
    try {
      request = request_of(message_, with_, share, &id);
    } catch (...) {
      return answer(number, id, {}, true, status_of_current().error_message(), {});
    }
    const auto shared = shared_outputs(request);
    cancellation->is(
        with_.server.infer(std::move(request), [this, number, id, shared](InferResponse response, bool last) {
          const std::string error = response.error ? response.error->what() : "";
          answer(number, id, std::move(response), last, error, shared);
        }));
  }

  void answer(uint64_t number, const std::string& id, InferResponse response, bool last, const std::string& error,
              const std::map<std::string, SharedRegion>& shared) {
    Write write;
    write.trace = std::move(response.trace);
    if (!error.empty()) response.outputs.clear();
    write.bytes = memory_of(response) + id.size() + error.size();
    if (!has_room(2 * write.bytes)) {  // as a message, and as the bytes of it
      // This request is still running, so nothing can end the call meanwhile. The client sees its stream cancelled.
      log_warning(
          fmt::format("grpc: a stream is ended: its client does not take its responses, or all clients together "
                      "leave too much: {} bytes more",
                      write.bytes));
      context_.TryCancel();
      return proceed([&] {
        if (last) running_.erase(number);
      });
    }
    {
      inference::ModelStreamInferResponse message;
      message.set_error_message(error);
      if (error.empty()) fill(*message.mutable_infer_response(), response, shared);
      message.mutable_infer_response()->set_id(id);
      response.outputs.clear();
      bool own = false;
      grpc::SerializationTraits<inference::ModelStreamInferResponse>::Serialize(message, &write.message, &own);
    }
    proceed([&] {
      unread_.give(write.bytes);
      writes_.push_back(std::move(write));
      if (last) running_.erase(number);
    });
  }

  bool has_room(uint64_t bytes) try {
    const std::lock_guard lock(mutex_);
    unread_.take(bytes);
    return true;
  } catch (const Error&) {
    return false;
  }
  // With mutex_ held.
  void pop() {
    unread_.give(writes_.front().bytes);
    writes_.pop_front();
  }

  // Notes what has happened, and starts what can be done now.
  template <class Note>
  void proceed(const Note& note) {
    std::unique_lock lock(mutex_);
    note();
    if (!start_next()) return;
    const bool broken = broken_, early = !ended_;
    lock.unlock();
    if (broken) return Finish({grpc::StatusCode::CANCELLED, "stream: cancelled"});
    Finish(early ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "stream: the server is shutting down")
                 : grpc::Status::OK);
  }

  // With mutex_ held. True, once, when there is nothing more to do.
  bool start_next() {
    if (finished_) return false;
    while (broken_ && !writing_ && !writes_.empty()) pop();  // nobody reads them
    if (!writing_ && !writes_.empty()) {
      writing_ = true;
      if (writes_.front().trace != nullptr) writes_.front().trace->stamp(Stamp::kSendStart);
      StartWrite(&writes_.front().message);
    }
    if (!reading_ && !ended_ && !ending_ && running_.size() + writes_.size() < most_) {
      reading_ = true;
      StartRead(&message_);
    }
    // A message that is being read when the server ends stays half.
    finished_ = ((ended_ && !reading_) || ending_) && !writing_ && running_.empty() && writes_.empty();
    return finished_;
  }

  grpc::CallbackServerContext& context_;
  const CallContext& with_;
  const size_t most_;
  grpc::ByteBuffer message_;  // being read

  std::mutex mutex_;
  bool reading_ = true, writing_ = false, finished_ = false;
  bool ended_ = false;   // there is nothing more to read
  bool broken_ = false;  // the client is gone
  bool ending_ = false;  // the server ends
  uint64_t started_ = 0;
  std::map<uint64_t, Running> running_;
  std::deque<Write> writes_;
  MemoryShare unread_;  // what `writes_` hold
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* refuse_stream(const grpc::Status& status) {
  class Refusal final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    explicit Refusal(const grpc::Status& status) { Finish(status); }
    void OnDone() override { delete this; }
  };
  return new Refusal(status);
}

grpc::ServerUnaryReactor* infer_call(grpc::CallbackServerContext& context, const CallContext& with,
                                     const grpc::ByteBuffer& message, grpc::ByteBuffer* response) {
  auto* const call = new InferCall(context, with, response);
  call->start(with, message);
  return call;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* stream_call(grpc::CallbackServerContext& context,
                                                                         const CallContext& with, size_t most) {
  const auto call = std::make_shared<StreamCall>(context, with, most);
  with.open.add(call);
  return call.get();
}

}  // namespace sluice::serving
