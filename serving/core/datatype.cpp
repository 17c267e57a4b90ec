#include "serving/core/datatype.h"

#include <array>
#include <string>

#include "serving/core/error.h"

namespace sluice::serving {

namespace {

struct Row {
  DataType type;
  std::string_view name;
  size_t size;
  std::optional<api::DType> dtype;
  bool only;  // the one that `dtype` is shown as
};
using enum inference::DataType;
using api::DType;
constexpr std::array kRows = {
    Row{TYPE_BOOL, "BOOL", 1, DType::kBool, true},       Row{TYPE_UINT8, "UINT8", 1, DType::kUInt8, true},
    Row{TYPE_UINT16, "UINT16", 2, DType::kInt16, false}, Row{TYPE_UINT32, "UINT32", 4, DType::kInt32, false},
    Row{TYPE_UINT64, "UINT64", 8, DType::kInt64, false}, Row{TYPE_INT8, "INT8", 1, DType::kInt8, true},
    Row{TYPE_INT16, "INT16", 2, DType::kInt16, true},    Row{TYPE_INT32, "INT32", 4, DType::kInt32, true},
    Row{TYPE_INT64, "INT64", 8, DType::kInt64, true},    Row{TYPE_FP16, "FP16", 2, DType::kFloat16, true},
    Row{TYPE_FP32, "FP32", 4, DType::kFloat32, true},    Row{TYPE_FP64, "FP64", 8, DType::kFloat64, true},
    Row{TYPE_STRING, "BYTES", 0, std::nullopt, false},   Row{TYPE_BF16, "BF16", 2, DType::kBFloat16, true},
};

const Row& row_of(DataType type) {
  for (const Row& row : kRows)
    if (row.type == type) return row;
  throw Error(Code::kInvalidArgument, "datatype: " + std::to_string(type) + " is none");
}

}  // namespace

std::string_view datatype_name(DataType type) { return row_of(type).name; }

DataType datatype_of(std::string_view name) {
  if (name == "TYPE_STRING") return TYPE_STRING;
  std::string_view bare = name;
  if (bare.starts_with("TYPE_")) bare.remove_prefix(5);
  for (const Row& row : kRows)
    if (row.name == bare) return row.type;
  throw Error(Code::kInvalidArgument,
              "datatype: '" + std::string(name.substr(0, 32)) +
                  "' is none; BOOL, UINT8 to UINT64, INT8 to INT64, FP16, FP32, FP64, BF16 and BYTES are");
}

size_t datatype_size(DataType type) { return row_of(type).size; }
std::optional<api::DType> dtype_of(DataType type) { return row_of(type).dtype; }

DataType datatype_of(api::DType dtype) {
  for (const Row& row : kRows)
    if (row.only && row.dtype == dtype) return row.type;
  throw Error(Code::kUnsupported, std::string("datatype: ") + api::dtype_name(dtype) + " has none in the protocol");
}

}  // namespace sluice::serving
