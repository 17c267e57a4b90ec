#include "serving/http/json_body.h"

#include <boost/json/memory_resource.hpp>

#include "serving/http/json_words.h"

namespace sluice::serving {

namespace json = boost::json;

// So that a small body of JSON does not become large values: what they take is counted before it is there, and goes
// back to the system with them.
class JsonBody::Memory final : public json::memory_resource {
 public:
  Memory(size_t most, MemoryPtr share) : left_(most), share_(std::move(share)) {}

 private:
  // Boost.JSON gives memory back with another alignment than it was asked for with; neither is above new's own.
  void* do_allocate(size_t bytes, size_t /*alignment*/) override {
    if (bytes > left_)
      throw Error(Code::kTooLarge, "infer: its JSON takes more memory than is allowed; send binary data");
    Held held(share_, bytes);
    void* const data = allocate_pages(bytes);
    if (data == nullptr) throw std::bad_alloc();
    left_ -= bytes;
    held.release();
    return data;
  }
  void do_deallocate(void* p, size_t bytes, size_t /*alignment*/) override {
    release_pages(bytes, p);
    left_ += bytes;
    if (share_ != nullptr) share_->give(bytes);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  size_t left_;
  const MemoryPtr share_;
};

JsonBody::JsonBody(std::string_view text, const std::string& what, const InferLimits& limits)
    : memory_(std::make_unique<Memory>(limits.most_bytes * kMemoryOfInput, limits.memory)),
      values_(first_.data(), first_.size(), memory_.get()) {
  constexpr size_t kDeepest = 32;
  boost::system::error_code error;
  json::value value = parse_with_words(text, &values_, memory_.get(), kDeepest, error);
  if (error) wrong(what + ": its JSON cannot be read: " + error.message());
  value_ = std::make_unique<json::value>(std::move(value));
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
