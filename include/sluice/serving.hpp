#pragma once
// The inference server within a program: the models of a repository, each behind its queue, as sluice-serve has them,
// with its ports or without. Link sluice::serving.
//
//   namespace serving = sluice::api::serving;
//   serving::Server server({.repositories = {"models"}});
//   server.wait_ready(std::chrono::minutes(1));
//   serving::Request request{.model = "digits"};
//   request.inputs.push_back(serving::Tensor::from("INPUT_0", pixels));  // a sluice::api::Tensor
//   const float* logits = server.infer(std::move(request)).outputs[0].data_as<float>();
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "export.h"
#include "tensor.h"

namespace sluice::api::serving {

enum class Code {
  kInvalidArgument,
  kNotFound,
  kAlreadyExists,
  kTooLarge,
  kUnsupported,
  kForbidden,    // an option of the server's says no
  kOverloaded,   // the queue is full: ask again after `retry_after`
  kUnavailable,  // being loaded, unloaded or restarted; shutting down
  kTimeout,      // waited longer than the request or its queue allows
  kCancelled,
  kInternal,
};

// what(): as clients of the server are told.
class SLUICE_API Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message, std::optional<std::chrono::milliseconds> retry_after = {})
      : std::runtime_error(message), code_(code), retry_after_(retry_after) {}
  Code code() const { return code_; }
  std::optional<std::chrono::milliseconds> retry_after() const { return retry_after_; }

 private:
  Code code_;
  std::optional<std::chrono::milliseconds> retry_after_;
};

// Contiguous, row-major, little-endian. Elements of BYTES are a length of 4 bytes and that many bytes, each.
struct SLUICE_API Tensor {
  std::string name;
  std::string datatype;        // "FP32", "INT64", "BYTES": the protocol's names
  std::vector<int64_t> shape;  // with the batch, where there is one
  // Of a request: memory at a multiple of 64 bytes is taken as it is and may be written to, so nobody else may use it
  // any more; other memory is copied. Of a response: only to be read.
  std::shared_ptr<void> data;
  size_t bytes = 0;

  static Tensor from(std::string name, const api::Tensor& tensor);                                            // a copy
  static Tensor from(std::string name, const std::vector<std::string>& strings, std::vector<int64_t> shape);  // BYTES
  std::vector<std::string> strings() const;  // of BYTES. Throws kInvalidArgument for others
  api::Tensor tensor() const;                // a copy. Throws kInvalidArgument for BYTES; UINT16 to 64 become INT
  template <class T>
  const T* data_as() const {
    return static_cast<const T*>(data.get());
  }
};

using Parameter = std::variant<bool, int64_t, uint64_t, double, std::string>;

struct Request {
  struct Output {
    std::string name;
    uint32_t classes = 0;  // > 0: the k largest, as text "value:index[:label]"
  };
  std::string model;
  std::string version = "";  // "": the newest that is served; may also be a version label
  std::string id = "";
  // "priority", "timeout" (microseconds), "sequence_id", "sequence_start", "sequence_end" mean what the protocol says.
  std::map<std::string, Parameter> parameters = {};
  std::vector<Tensor> inputs = {};
  std::vector<Output> outputs = {};  // none: all of the model
};

struct Response {
  std::string model, version, id;
  std::map<std::string, Parameter> parameters;
  std::vector<Tensor> outputs;  // in the order asked for
  std::optional<Error> error;   // then there are no outputs
};

// kNone: all models, once. kExplicit: what load() asks for, at the start `startup_models`. kPoll: as the folders
// change.
enum class Control { kNone, kExplicit, kPoll };

// Files in PEM.
struct Tls {
  bool on = false;
  std::string certificate = "", key = "";  // the server's
  std::string root = "";                   // of the authorities whose clients are let in, with `mutual`
  bool mutual = false;                     // clients need certificates, too
};

struct Listen {
  bool on = false;
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0: one that is free
  Tls tls = {};       // of HTTP and gRPC
};

struct Options {
  std::vector<std::string> repositories = {};
  std::string model_config_file = "";  // a list of more models, as TensorFlow Serving's
  Control control = Control::kNone;
  std::chrono::milliseconds poll{15000};
  std::vector<std::string> startup_models = {};  // with kExplicit; "*": all
  bool auto_config = true;                       // complete configs, or make them, from the bundles
  bool save_memory = false;                      // load a new version after the old one has gone, instead of before
  uint64_t memory_limit = 0;                     // bytes of all models together; 0: none
  int cores = 0;                                 // lent to models; 0: all
  uint32_t max_queue_size = 256;                 // requests that wait for a model that does not say
  uint64_t response_cache_bytes = 0;             // 0: none
  std::map<std::string, uint32_t> rate_limits = {};
  bool shared_memory = false;  // clients of the ports may register regions
  std::string shared_memory_prefix = "/sluice";
  std::string name = "sluice";
  // Ports for clients of the protocol, if any.
  Listen http = {}, grpc = {}, metrics = {};
  std::string http_base_path = "";
  uint64_t max_input_bytes = uint64_t{64} << 20u;
  std::string management_token = "";  // who may load models and change settings over the ports; "": everybody
  bool follow_links = false;          // in repositories, where they stay beneath
};

// A request under way. Letting go of it changes nothing.
class SLUICE_API Call {
 public:
  // Drops the request where it still waits: it is answered with kCancelled. Does nothing when it has been answered.
  void cancel();

 private:
  friend class Server;
  std::shared_ptr<void> handle_;
};

// Thread safety: everything may be called from any thread at any time. Whatever cannot be done throws Error; so does
// everything that is asked of a server that has been moved from.
class SLUICE_API Server {
 public:
  // Starts loading, and listens where it shall. Throws kNotFound for a repository that is none, kUnavailable for a port
  // in use.
  explicit Server(const Options& options);
  // As stop() without patience. Within `respond` it returns at once, and the server ends a little later.
  ~Server();
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;

  uint16_t http_port() const;  // 0 where it does not listen
  uint16_t grpc_port() const;
  uint16_t metrics_port() const;

  bool ready() const;  // every model that it was started with is
  bool model_ready(const std::string& name, const std::string& version = "") const;
  // Until ready(). Throws kUnavailable with the reasons when models could not be loaded, kTimeout.
  void wait_ready(std::chrono::milliseconds timeout) const;

  // Both wait until it is done or has failed. `config`: a ModelConfig as JSON instead of the repository's; `files`:
  // instead of the repository's, by their path in the model's folder ("1/model/plan.json"); then a config must be
  // given.
  void load(const std::string& name, const std::string& config = "",
            const std::map<std::string, std::string>& files = {});
  void unload(const std::string& name, bool dependents = false);

  // Waits for the answer. Throws the error that it has; kUnsupported for models with several answers to a request.
  Response infer(Request request);
  // Starts a request and returns. `respond` is called for every answer, the last time with `last`; exactly once for
  // models that are not decoupled; on any thread, also before start() has returned. It must not block: infer(), load(),
  // unload() and stop() of this server throw kInvalidArgument there. What it throws is logged. What is wrong with the
  // request is told by it; start() throws where there is no `respond`.
  Call start(Request request, std::function<void(Response response, bool last)> respond);

  // Every other call of the protocol, as HTTP has it, but without HTTP: call("GET", "/v2/models/digits/stats"). For
  // programs with a network of their own, and for metadata, configs, statistics, the index, settings. Errors are
  // replies, {"error": ..}, too.
  struct Reply {
    int status = 200;
    std::string body;  // JSON; of "/metrics" Prometheus' text
  };
  Reply call(const std::string& method, const std::string& path, const std::string& body = "");

  // No new requests; waits for those under way, or for `timeout`; then cancels the rest. Whether all were answered.
  bool stop(std::chrono::milliseconds timeout);

 private:
  struct Impl;
  SLUICE_HIDDEN static void end(std::shared_ptr<Impl> impl);
  SLUICE_HIDDEN Impl& impl() const;  // throws where it has been moved from
  SLUICE_HIDDEN Impl& waiting(const char* what) const;
  std::shared_ptr<Impl> impl_;
};

}  // namespace sluice::api::serving
