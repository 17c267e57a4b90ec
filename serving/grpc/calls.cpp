#include "serving/grpc/calls.h"

#include <fmt/format.h>

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "serving/core/log.h"
#include "serving/core/trace.h"
#include "serving/grpc/grpc_codec.h"

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

// Of a request that never came to the server.
grpc::Status refusal_of_current(Server& server, const inference::ModelInferRequest& message,
                                Clock::time_point received) {
  const Code code = [] {
    try {
      throw;
    } catch (const Error& error) {
      return error.code();
    } catch (...) {
      return Code::kInternal;
    }
  }();
  server.refused(message.model_name(), message.model_version(), code, received);
  return status_of_current();
}

// A request as its message and as the tensors copied from it.
uint64_t memory_of(const inference::ModelInferRequest& message) { return 2 * message.ByteSizeLong(); }

// Lives until OnDone, which comes after Finish, which comes with the answer.
class InferCall final : public grpc::ServerUnaryReactor {
 public:
  InferCall(grpc::CallbackServerContext& context, const CallContext& with, inference::ModelInferResponse* response)
      : context_(context), response_(response), memory_(with.memory, UINT64_MAX) {}

  void start(const CallContext& with, const inference::ModelInferRequest& message) {
    const auto received = Clock::now();
    const std::shared_ptr<Cancellation> cancellation = cancellation_;  // this may be gone when infer() returns
    InferRequest request;
    try {
      memory_.take(memory_of(message));
      request = request_of(message, with.server, with.buffers);
    } catch (...) {
      return Finish(refusal_of_current(with.server, message, received));
    }
    request.received = received;
    request.read = Clock::now();
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
      // What gRPC's clients wait for before they try again, where they are told to.
      if (const auto after = response.error->retry_after())
        context_.AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(after->count()));
      return Finish(status_of(*response.error));
    }
    try {
      fill(*response_, response, shared_);
      memory_.give(memory_.held() / 2);         // the tensors; the message stays till the end
      memory_.take(response_->ByteSizeLong());  // until the client has it
    } catch (...) {
      return Finish(status_of_current());
    }
    Finish(grpc::Status::OK);
  }

  grpc::CallbackServerContext& context_;
  inference::ModelInferResponse* const response_;
  MemoryShare memory_;
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
  std::map<std::string, SharedRegion> shared_;
  std::shared_ptr<RequestTrace> trace_;
  std::atomic<bool> several_{false};
};

// Reads while fewer than `most_` requests are unanswered, writes one response at a time, and finishes when all that was
// read is answered and written. Until then responses may use it; OnDone, which deletes it, may come as soon as Finish
// is called, so that is the last thing that anybody does, and without the lock.
class StreamCall final
    : public grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse> {
 public:
  StreamCall(grpc::CallbackServerContext& context, const CallContext& with, size_t most)
      : context_(context), with_(with), most_(most), unread_(with.memory, with.most_unread) {
    StartRead(&message_);
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
  void OnDone() override { delete this; }

 private:
  struct Write {
    inference::ModelStreamInferResponse message;
    std::shared_ptr<RequestTrace> trace;
    uint64_t bytes = 0;
  };
  struct Running {
    std::shared_ptr<Cancellation> cancellation;
    std::unique_ptr<MemoryShare> memory;
  };

  void start() {
    const auto received = Clock::now();
    const auto cancellation = std::make_shared<Cancellation>();
    const std::string id = message_.id();
    auto memory = std::make_unique<MemoryShare>(with_.memory, UINT64_MAX);
    MemoryShare& share = *memory;
    uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = ++started_;
      running_.emplace(number, Running{cancellation, std::move(memory)});
      if (broken_) cancellation->cancel();  // of no request yet: whatever it will be of
    }
    InferRequest request;
    try {
      share.take(memory_of(message_));
      request = request_of(message_, with_.server, with_.buffers);
    } catch (...) {
      return answer(number, id, {}, true, refusal_of_current(with_.server, message_, received).error_message(), {});
    }
    request.received = received;
    request.read = Clock::now();
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
    write.message.set_error_message(error);
    if (error.empty()) {
      try {
        fill(*write.message.mutable_infer_response(), response, shared);
      } catch (...) {
        write.message.set_error_message(status_of_current().error_message());
      }
    }
    write.message.mutable_infer_response()->set_id(id);
    write.bytes = write.message.ByteSizeLong();
    if (!has_room(write.bytes)) {
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
    proceed([&] {
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
    const bool broken = broken_;
    lock.unlock();
    Finish(broken ? grpc::Status(grpc::StatusCode::CANCELLED, "stream: cancelled") : grpc::Status::OK);
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
    if (!reading_ && !ended_ && running_.size() + writes_.size() < most_) {
      reading_ = true;
      StartRead(&message_);
    }
    finished_ = ended_ && !reading_ && !writing_ && running_.empty() && writes_.empty();
    return finished_;
  }

  grpc::CallbackServerContext& context_;
  const CallContext& with_;
  const size_t most_;
  inference::ModelInferRequest message_;  // being read

  std::mutex mutex_;
  bool reading_ = true, writing_ = false, finished_ = false;
  bool ended_ = false;   // there is nothing more to read
  bool broken_ = false;  // the client is gone
  uint64_t started_ = 0;
  std::map<uint64_t, Running> running_;
  std::deque<Write> writes_;
  MemoryShare unread_;  // what `writes_` hold
};

}  // namespace

grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>* refuse_stream(
    const grpc::Status& status) {
  class Refusal final
      : public grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse> {
   public:
    explicit Refusal(const grpc::Status& status) { Finish(status); }
    void OnDone() override { delete this; }
  };
  return new Refusal(status);
}

grpc::ServerUnaryReactor* infer_call(grpc::CallbackServerContext& context, const CallContext& with,
                                     const inference::ModelInferRequest& message,
                                     inference::ModelInferResponse* response) {
  auto* const call = new InferCall(context, with, response);
  call->start(with, message);
  return call;
}

grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>* stream_call(
    grpc::CallbackServerContext& context, const CallContext& with, size_t most) {
  return new StreamCall(context, with, most);
}

}  // namespace sluice::serving
