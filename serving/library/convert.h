#pragma once
// The library's own types and the public ones (include/sluice/serving.hpp).
#include <functional>

#include "include/sluice/serving.hpp"
#include "serving/core/buffers.h"
#include "serving/core/error.h"
#include "serving/core/options.h"
#include "serving/core/request.h"

namespace sluice::serving {

namespace facade = sluice::api::serving;

facade::Error public_error(const Error& error);
ServerOptions server_options(const facade::Options& options);
// Inputs that are not at a multiple of 64 bytes are copied. Throws Error.
InferRequest core_request(facade::Request request, BufferPool& buffers);
facade::Response public_response(InferResponse response);

// Throws the server's own errors from `function` as the public error.
template <class Function>
auto translated(const Function& function) {
  try {
    return function();
  } catch (const Error& error) {
    throw public_error(error);
  }
}

}  // namespace sluice::serving
