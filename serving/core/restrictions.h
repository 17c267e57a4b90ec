#pragma once
// Groups of calls that only clients with a certain header may make, as Triton's --http-restricted-api says them.
#include <cstdint>
#include <map>
#include <string>

#include "serving/core/error.h"
#include "serving/core/secret.h"

namespace sluice::serving {

enum class Api : uint8_t {
  kHealth,
  kMetadata,
  kInference,
  kSharedMemory,
  kModelConfig,
  kModelRepository,
  kStatistics,
  kTrace,
  kLogging,
};

struct Restriction {
  std::string header, value;
};
using Restrictions = std::map<Api, Restriction>;

// "health,metadata:admin-key=secret": adds what it says. Throws std::runtime_error that begins with `option`.
void parse_restriction(const std::string& option, const std::string& text, Restrictions& restrictions);
// Throws kForbidden unless `value_of`, given a header's name, returns what it has to be. `prefix` stands before the
// names of headers.
template <class ValueOf>
void check_restriction(const Restrictions& restrictions, Api api, const std::string& prefix, const ValueOf& value_of) {
  if (restrictions.empty()) [[likely]]
    return;
  const auto found = restrictions.find(api);
  if (found == restrictions.end()) return;
  const std::string header = prefix + found->second.header;
  if (!same_secret(value_of(header), found->second.value))
    throw Error(Code::kForbidden, "request: this API is restricted; it needs the header '" + header + "'");
}

}  // namespace sluice::serving
