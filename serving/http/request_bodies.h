#pragma once
// Reads the bodies of one connection's requests. Only for the sources of this folder.
#include "serving/http/connection.h"
#include "serving/http/infer_json.h"
#include "serving/http/named_json.h"
#include "serving/http/request_reader.h"

namespace sluice::serving {

inline constexpr size_t kLongJson = size_t{256} << 10;  // takes some hundred microseconds to parse

// Each reads the body of the request whose header has been read. Work that takes long is done by the workers.
class RequestBodies {
 public:
  template <class T>
  using Task = boost::asio::awaitable<T>;

  RequestBodies(RequestReader& reader, HttpState& state) : reader_(reader), state_(state) {}
  void begin() { whole_ = false; }
  bool whole() const { return whole_; }  // it has been read

  Task<Text> unpacked();
  // Reads the tensors to where they will be read from.
  Task<InferHead> infer(const Route& route);
  Task<NamedRequest> named(const Route& route);

 private:
  size_t checked_head_length(uint64_t body) const;
  RawInput raw_input(const Route& route, size_t bytes) const;

  RequestReader& reader_;
  HttpState& state_;
  bool whole_ = false;
};

}  // namespace sluice::serving
