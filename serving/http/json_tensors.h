#pragma once
// Tensors as lists of JSON.
#include <boost/json/value.hpp>
#include <string>

#include "serving/core/buffers.h"
#include "serving/core/request.h"
#include "serving/core/text.h"
#include "serving/http/turns.h"

namespace sluice::serving {

// Takes `data`, nested or flat, as the content of `tensor`, whose datatype and shape are set. Throws kInvalidArgument;
// kTooLarge for more than `most` bytes. They count in `share`.
void take_json(Tensor& tensor, const boost::json::value& data, const std::string& where, BufferPool& buffers,
               size_t most, const MemoryPtr& share);
// Appends elements `first` to `end` of numbers, with commas between them. NaN and infinities are written as Python's
// json and the client read them. Throws kInvalidArgument for what has no form in JSON.
void append_elements(Text& out, const Tensor& tensor, size_t first, size_t end);
// Appends all elements as a flat list, in turns.
Turns append_json(Text& out, const Tensor& tensor);
inline constexpr size_t kElementsOfTurn = size_t{16} << 10;
// The product of the dims; throws kInvalidArgument for a negative one, kTooLarge beyond 2^48.
uint64_t elements_of(const std::vector<int64_t>& shape, const std::string& where);

}  // namespace sluice::serving
