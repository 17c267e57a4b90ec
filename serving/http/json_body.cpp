#include "serving/http/json_body.h"

#include <boost/json/memory_resource.hpp>

#include "serving/http/json_words.h"

namespace sluice::serving {

namespace json = boost::json;

// So that a small body of JSON does not become large values.
class JsonBody::Memory final : public json::memory_resource {
 public:
  Memory(size_t most, MemoryShare* share) : left_(most), share_(share) {}

 private:
  // Boost.JSON gives memory back with another alignment than it was asked for with; neither is above new's own.
  void* do_allocate(size_t bytes, size_t /*alignment*/) override {
    if (bytes > left_)
      throw Error(Code::kTooLarge, "infer: its JSON takes more memory than is allowed; send binary data");
    if (share_ != nullptr) share_->take(bytes);
    left_ -= bytes;
    return ::operator new(bytes);
  }
  void do_deallocate(void* p, size_t bytes, size_t /*alignment*/) override {
    left_ += bytes;
    if (share_ != nullptr) share_->give(bytes);
    ::operator delete(p);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  size_t left_;
  MemoryShare* const share_;
};

JsonBody::JsonBody(std::string_view text, const std::string& what, const InferLimits& limits)
    : memory_(std::make_unique<Memory>(limits.most_bytes * 8, limits.memory)) {
  constexpr size_t kDeepest = 32;
  boost::system::error_code error;
  value_ = std::make_unique<json::value>(parse_with_words(text, memory_.get(), {}, kDeepest, error));
  if (error) wrong(what + ": its JSON cannot be read: " + error.message());
  object_of(*value_, what + ": the request");
}

JsonBody::~JsonBody() = default;

const json::object& object_of(const json::value& value, const std::string& where) {
  if (!value.is_object()) wrong(where + ": it must be an object");
  return value.get_object();
}

Parameter parameter_of(const json::value& value, const std::string& name) {
  if (value.is_bool()) return value.get_bool();
  if (value.is_int64()) return value.get_int64();
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_double()) return value.get_double();
  if (value.is_string()) return std::string(value.get_string());
  wrong("infer: parameter '" + name + "' must be a number, a string, true or false");
}

}  // namespace sluice::serving
