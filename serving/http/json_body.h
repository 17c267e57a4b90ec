#pragma once
// The JSON of a request's body, which takes no more memory than is allowed. Only for the sources of this folder.
#include <array>
#include <boost/json/monotonic_resource.hpp>
#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "serving/http/infer_json.h"

namespace sluice::serving {

class JsonBody {
 public:
  // `what`: "infer", as errors begin. Throws Error for what is no JSON, or no object.
  JsonBody(std::string_view text, const std::string& what, const InferLimits& limits);
  ~JsonBody();
  JsonBody(const JsonBody&) = delete;
  JsonBody& operator=(const JsonBody&) = delete;
  boost::json::object& object() { return value_->get_object(); }

 private:
  class Memory;
  std::unique_ptr<Memory> memory_;         // outlives the values
  std::array<unsigned char, 2048> first_;  // is enough for most of them
  boost::json::monotonic_resource values_;
  std::unique_ptr<boost::json::value> value_;
};

const boost::json::object& object_of(const boost::json::value& value, const std::string& where);
// The value of a request's parameter.
Parameter parameter_of(const boost::json::value& value, const std::string& name);

}  // namespace sluice::serving
