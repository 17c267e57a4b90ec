#pragma once
// A server of given executors, for tests; everybody else calls make_server(options).
#include <memory>

#include "serving/repository/context.h"

namespace sluice::serving {

std::unique_ptr<Server> make_server(ServerOptions options, Executors executors);

}  // namespace sluice::serving
