#pragma once
// Tensors as lists of JSON.
#include <boost/json/value.hpp>
#include <string>

#include "serving/core/buffers.h"
#include "serving/core/request.h"

namespace sluice::serving {

// Takes `data`, nested or flat, as the content of `tensor`, whose datatype and shape are set. Throws kInvalidArgument;
// kTooLarge for more than `most` bytes.
void take_json(Tensor& tensor, const boost::json::value& data, const std::string& where, BufferPool& buffers,
               size_t most);
// Appends the elements as a flat list. NaN and infinities are written as Python's json and the client read them.
void append_json(std::string& out, const Tensor& tensor);
// The product of the dims; throws kInvalidArgument for a negative one, kTooLarge beyond 2^48.
uint64_t elements_of(const std::vector<int64_t>& shape, const std::string& where);

}  // namespace sluice::serving
