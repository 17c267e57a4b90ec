#include "serving/library/convert.h"

#include <cstring>
#include <utility>

namespace sluice::serving {

namespace {

constexpr uintptr_t kAlignment = 64;

Tensor core_tensor(facade::Tensor tensor, BufferPool& buffers) {
  const std::string where = "infer: input '" + tensor.name + "'";
  if (tensor.bytes > 0 && tensor.data == nullptr) throw Error(Code::kInvalidArgument, where + ": it has no data");
  Tensor made;
  made.datatype = datatype_of(tensor.datatype);
  made.name = std::move(tensor.name);
  made.shape = std::move(tensor.shape);
  made.bytes = tensor.bytes;
  if (tensor.bytes == 0) return made;
  if (reinterpret_cast<uintptr_t>(tensor.data.get()) % kAlignment == 0) {
    made.data = std::move(tensor.data);
  } else {
    made.data = buffers.take(tensor.bytes);
    std::memcpy(made.data.get(), tensor.data.get(), tensor.bytes);
  }
  return made;
}

}  // namespace

facade::Error public_error(const Error& error) {
  const auto code = [&] {
    switch (error.code()) {
      case Code::kInvalidArgument: return facade::Code::kInvalidArgument;
      case Code::kNotFound: return facade::Code::kNotFound;
      case Code::kAlreadyExists: return facade::Code::kAlreadyExists;
      case Code::kTooLarge: return facade::Code::kTooLarge;
      case Code::kUnsupported: return facade::Code::kUnsupported;
      case Code::kForbidden: return facade::Code::kForbidden;
      case Code::kOverloaded: return facade::Code::kOverloaded;
      case Code::kUnavailable: return facade::Code::kUnavailable;
      case Code::kTimeout: return facade::Code::kTimeout;
      case Code::kCancelled: return facade::Code::kCancelled;
      case Code::kInternal: return facade::Code::kInternal;
    }
    return facade::Code::kInternal;
  }();
  return {code, error.what(), error.retry_after()};
}

ServerOptions server_options(const facade::Options& options) {
  ServerOptions made;
  made.name = options.name;
  made.repositories = options.repositories;
  made.model_config_file = options.model_config_file;
  made.control = options.control == facade::Control::kExplicit ? ModelControl::kExplicit
                 : options.control == facade::Control::kPoll   ? ModelControl::kPoll
                                                               : ModelControl::kNone;
  made.poll = options.poll;
  made.startup_models = options.startup_models;
  made.auto_config = options.auto_config;
  made.availability = options.save_memory ? Availability::kSaveMemory : Availability::kPreserve;
  made.memory_limit = options.memory_limit;
  made.cores = options.cores;
  made.max_queue_size = options.max_queue_size;
  made.response_cache_bytes = options.response_cache_bytes;
  made.rate_limits = options.rate_limits;
  made.follow_links = options.follow_links;
  made.shared_memory = options.shared_memory;
  made.shared_memory_prefix = options.shared_memory_prefix;
  return made;
}

InferRequest core_request(facade::Request request, BufferPool& buffers) {
  InferRequest made;
  made.model = std::move(request.model);
  made.version = std::move(request.version);
  made.id = std::move(request.id);
  made.parameters = std::move(request.parameters);
  for (facade::Tensor& input : request.inputs) made.inputs.push_back(core_tensor(std::move(input), buffers));
  for (facade::Request::Output& output : request.outputs)
    made.outputs.push_back({std::move(output.name), output.classes, std::nullopt});
  return made;
}

facade::Response public_response(InferResponse response) {
  facade::Response made;
  made.model = std::move(response.model);
  made.version = std::move(response.version);
  made.id = std::move(response.id);
  made.parameters = std::move(response.parameters);
  if (response.error) made.error = public_error(*response.error);
  for (Tensor& output : response.outputs)
    made.outputs.push_back({std::move(output.name), std::string(datatype_name(output.datatype)),
                            std::move(output.shape), std::move(output.data), output.bytes});
  return made;
}

}  // namespace sluice::serving
