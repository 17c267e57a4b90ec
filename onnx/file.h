#pragma once
// Model files of ONNX: parsed, and what lies in files beside them. A file is hostile until it has been checked: sizes
// are held against the bytes that are there before anything is allocated, and data lies beneath the model's folder.
#include <memory>
#include <string>
#include <string_view>

#include "onnx.pb.h"
#include "tensor/tensor.h"

namespace sluice::onnx {

namespace format = onnx_format;

// The folder of a model, from which tensors may take their data.
class Folder {
 public:
  // "": there is none, and tensors with data elsewhere are refused.
  explicit Folder(std::string path) : path_(std::move(path)) {}
  // `length` bytes from `offset` of a file in or beneath the folder; -1: all that follow. Throws kValue where the name
  // leaves the folder or a part of it is a link, and where the file has fewer bytes; kIo where it cannot be read.
  std::string read(const std::string& location, int64_t offset, int64_t length, const std::string& where) const;

 private:
  std::string path_;
};

// Throws kIo where the file cannot be read, and kValue where it is no model.
format::ModelProto read_model(const std::string& path);
format::ModelProto parse_model(std::string_view bytes, const std::string& name);

// The dtype of this number; nullopt: Sluice has none such. And the number of a dtype.
std::optional<DType> dtype_of(int32_t data_type);
int32_t data_type_of(DType dtype);
std::string data_type_name(int32_t data_type);  // "uint16", for errors

// The contents of a tensor. `where` names it in errors.
Tensor read_tensor(const format::TensorProto& tensor, const Folder& folder, const std::string& where);
// The same of a tensor with few elements that are not zero.
Tensor read_sparse(const format::SparseTensorProto& tensor, const Folder& folder, const std::string& where);
// Throws kValue or kUnsupported where read_tensor() would, by what the file says of sizes and types alone.
TensorType checked_type(const format::TensorProto& tensor, const std::string& where);

}  // namespace sluice::onnx
