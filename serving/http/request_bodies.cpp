#include "serving/http/request_bodies.h"

#include <fmt/format.h>

#include <cstring>

namespace sluice::serving {

namespace {

void check_binary(const InferHead& head, uint64_t bytes) {
  if (head.binary_bytes() != bytes)
    throw HttpError(400, fmt::format("infer: {} bytes follow the JSON; its inputs have {} bytes of binary data", bytes,
                                     head.binary_bytes()));
}

}  // namespace

// Nobody knows before how large an unpacked body becomes, so only the first turn, a short one, is taken here.
RequestBodies::Task<Text> RequestBodies::unpacked() {
  Text body = co_await reader_.whole_body();
  whole_ = true;
  if (reader_.coding() == Coding::kNone) co_return body;
  Text unpacked(reader_.memory());
  Turns turns = unpack(body, reader_.coding(), state_.options.max_input, unpacked);
  if (turns.next()) co_await state_.workers->run(std::move(turns));
  co_return unpacked;
}

RequestBodies::Task<InferHead> RequestBodies::infer(const Route& route) {
  const InferLimits limits{state_.options.max_input, reader_.memory()};
  const bool whole = reader_.chunked() || reader_.coding() != Coding::kNone;  // it has to be read before it is known
  Text body;
  if (whole) body = co_await unpacked();
  const uint64_t bytes = whole ? body.size() : reader_.left();
  const size_t length = checked_head_length(bytes);
  InferHead head;
  std::string prefix;
  if (reader_.head_length() == 0) {
    RawInput raw = raw_input(route, bytes);
    head = std::move(raw.head);
    prefix = std::move(raw.prefix);
  } else {
    Text own;  // not by ?: with co_await, whose temporaries g++ 12 destroys twice
    if (!whole) own = co_await reader_.text(length);
    const std::string_view text = whole ? std::string_view(body).substr(0, length) : std::string_view(own);
    head = co_await state_.workers->run_if(text.size() > kLongJson,
                                           [&] { return parse_head(text, state_.server, state_.buffers, limits); });
  }
  head.request.memory = reader_.memory();
  check_binary(head, bytes - length);
  for (size_t i = 0, at = length; i < head.binary.size(); at += head.binary[i++]) {
    const size_t size = prefix.size() + head.binary[i];
    if (size == 0) continue;
    std::shared_ptr<void>& data = head.request.inputs[i].data;
    if (whole) {
      data = state_.buffers.take(size, reader_.memory());
      std::memcpy(static_cast<char*>(data.get()) + prefix.size(), body.data() + at, head.binary[i]);
    } else {
      BufferPool::Arriving arriving = state_.buffers.take_arriving(size, reader_.memory());
      if (!prefix.empty()) arriving.come(prefix.size());
      co_await reader_.read(arriving, prefix.size(), head.binary[i]);
      data = arriving.data();
    }
    if (!prefix.empty()) std::memcpy(data.get(), prefix.data(), prefix.size());
  }
  whole_ = true;
  co_return head;
}

size_t RequestBodies::checked_head_length(uint64_t body) const {
  const std::optional<uint64_t> length = reader_.head_length();
  if (!length) return body;
  if (*length > body)
    throw HttpError(400,
                    fmt::format("request: Inference-Header-Content-Length: {}; the body has {} bytes", *length, body));
  return *length;
}
RawInput RequestBodies::raw_input(const Route& route, size_t bytes) const {
  const auto metadata = state_.server.model_metadata(route.model, route.version);
  const auto config = state_.server.model_config(route.model, route.version);
  return raw_head(metadata, config.max_batch_size() > 0, bytes);
}

RequestBodies::Task<NamedRequest> RequestBodies::named(const Route& route) {
  const Text body = co_await unpacked();
  const auto model = state_.server.model_metadata(route.model, route.version);
  const InferLimits limits{state_.options.max_input, reader_.memory()};
  const auto read = route.call == Call::kPredict ? predict_request : generate_request;
  NamedRequest named = co_await state_.workers->run_if(body.size() > kLongJson,
                                                       [&] { return read(body, model, state_.buffers, limits); });
  named.request.transport = Transport::kHttp;
  co_return named;
}

}  // namespace sluice::serving
