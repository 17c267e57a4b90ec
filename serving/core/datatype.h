#pragma once
// Element types of the protocol, and which of the engine's they are.
#include <cstddef>
#include <optional>
#include <string_view>

#include "model_config.pb.h"
#include "sluice/dtype.h"

namespace sluice::serving {

using inference::DataType;

std::string_view datatype_name(DataType type);  // "FP32"; "BYTES"
// The datatype of "FP32", or of a config's "TYPE_FP32". Throws kInvalidArgument.
DataType datatype_of(std::string_view name);
size_t datatype_size(DataType type);  // bytes per element; 0 of BYTES, whose elements have each their own
// How the engine holds it. Unsigned integers of more than 8 bits are the signed ones of the same bits, and what a model
// does to them is its own affair; BYTES has none.
std::optional<api::DType> dtype_of(DataType type);
DataType datatype_of(api::DType dtype);  // throws kUnsupported for complex numbers

}  // namespace sluice::serving
