#pragma once
// A request for inference and its responses, as front ends hand them to the server: no JSON, no protobuf.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "serving/core/datatype.h"
#include "serving/core/error.h"
#include "serving/core/memory_budget.h"

namespace sluice::serving {

using Parameter = std::variant<bool, int64_t, uint64_t, double, std::string>;
using Parameters = std::map<std::string, Parameter>;
using Clock = std::chrono::steady_clock;

// Contiguous, row-major, little-endian. Elements of BYTES are a length of 4 bytes and that many bytes, each.
struct Tensor {
  std::string name;
  DataType datatype = DataType::TYPE_INVALID;
  std::vector<int64_t> shape;  // with the batch, where there is one
  // A request's data lie at a multiple of 64 bytes and belong to this tensor alone, so that it may be written to. A
  // response's data are shared with others, at any address, only to be read. Null where `bytes` is 0.
  std::shared_ptr<void> data;
  size_t bytes = 0;
};

// A piece of registered shared memory; SharedMemory resolves it.
struct SharedRegion {
  std::string region;
  uint64_t offset = 0, bytes = 0;
};

struct RequestedOutput {
  std::string name;
  uint32_t classes = 0;                // > 0: the k largest, as text
  std::optional<SharedRegion> shared;  // write it there; the response has no bytes of it then
};

// Limits of the tensors in a request, of parameters, and of dims of a tensor.
inline constexpr size_t kMostTensors = 4096, kMostParameters = 1024, kMostDims = 64;
// Throws kTooLarge for more than `most`.
void check_count(size_t count, size_t most, const char* what);
// Whether the region can hold the tensor, by its datatype and shape; to be asked before its bytes are copied. Throws
// kInvalidArgument, kTooLarge.
void check_region(const Tensor& tensor, const SharedRegion& region, const std::string& where);

// The `parameters` of a request whose names mean something to the server. Throws kInvalidArgument.
struct RequestOptions {
  std::variant<uint64_t, std::string> sequence_id = uint64_t{0};  // 0, "": of none
  bool sequence_start = false, sequence_end = false;
  uint64_t priority = 0;                 // 0: the model's default
  std::chrono::microseconds timeout{0};  // in the queue; 0: the model's default
  bool in_sequence() const;
};
RequestOptions options_of(const Parameters& parameters);

class RequestTrace;  // trace.h

enum class Transport : uint8_t { kInProcess, kHttp, kGrpc };

struct InferRequest {
  std::string model, version;  // "" version: the newest that is served; may also be a version label
  std::string id;
  Parameters parameters;
  std::vector<Tensor> inputs;
  std::vector<RequestedOutput> outputs;  // none: all of the model
  Transport transport = Transport::kInProcess;
  Clock::time_point received = Clock::now();  // its first byte
  Clock::time_point read{};                   // its last byte, where the front end says
  std::string trace_parent = {};              // what a client's own trace says of it (W3C's traceparent), if it does
  std::shared_ptr<RequestTrace> trace = {};   // set by the server where this request is traced
  // The share in which its memory counts: the front end's part of it, and the server's results and answers, as long as
  // they are there. Null where it is not counted.
  MemoryPtr memory = {};
};

struct InferResponse {
  std::string model, version, id;
  Parameters parameters;
  std::vector<Tensor> outputs;               // in the order asked for
  std::optional<Error> error;                // then nothing else but the names is set
  std::shared_ptr<RequestTrace> trace = {};  // to stamp, and to let go of when it has been sent
};

// The bytes of its names, id and parameters, beside its tensors' bytes; at least.
uint64_t text_bytes(const InferRequest& request);

// Called for every response to a request, the last time with `last`; exactly once for models that are not decoupled. On
// any thread, also before infer() has returned. Must not block.
using Respond = std::function<void(InferResponse response, bool last)>;

// A request under way. Letting go of it changes nothing.
class RequestHandle {
 public:
  virtual ~RequestHandle() = default;
  // Drops the request where it still waits; it is then answered with kCancelled. A running step is not interrupted, but
  // its result is dropped. Any thread; does nothing when the request has been answered.
  virtual void cancel() = 0;
};

}  // namespace sluice::serving
