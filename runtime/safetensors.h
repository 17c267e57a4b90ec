#pragma once
// The safetensors format: named tensors in one file (8 bytes header length, JSON header, data).
#include <map>
#include <memory>
#include <string>

#include "base/file.h"
#include "memory/storage.h"
#include "runtime/bundle.h"

namespace sluice {

// Tensors by name, contiguous, in the order of their names. Throws kIo.
void write_safetensors(const std::string& path, const std::map<std::string, BundleTensor>& tensors);

// Reads strictly: the header's length, every dtype, shape and offset are checked against the file's size before memory
// is allocated. Throws kIo when the file cannot be read, kValue "<path>: ..." when it is not well formed.
std::map<std::string, BundleTensor> read_safetensors(const std::string& path,
                                                     const std::shared_ptr<Allocator>& allocator,
                                                     Links links = Links::kFollow);

}  // namespace sluice
