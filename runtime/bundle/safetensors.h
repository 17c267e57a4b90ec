#pragma once
// The safetensors format: named tensors in one file (8 bytes header length, JSON header, data).
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/files/file.h"
#include "memory/storage.h"
#include "runtime/bundle/bundle.h"

namespace sluice {

// Tensors by name, contiguous. Those of whole units of plan::kAlignment bytes come first, and all of these lie at whole
// units of the file, so that they can be mapped. The file takes the place of one that is there, which stays as it is
// for those who have it mapped. Returns its fingerprint, which is in its metadata (runtime/bundle/bundle_digest.h).
// Throws kIo.
std::string write_safetensors(const std::string& path, const std::map<std::string, BundleTensor>& tensors);

// kMap: tensors that lie at whole units of plan::kAlignment bytes, and are as long, are the file's pages
// (base/files/mapped_file.h); the others are copied.
enum class Pages { kCopy, kMap };

// Reads strictly: the header's length, every dtype, shape and offset are checked against the file's size before memory
// is allocated. Throws kIo when the file cannot be read, kValue "<path>: ..." when it is not well formed.
std::map<std::string, BundleTensor> read_safetensors(const std::string& path,
                                                     const std::shared_ptr<Allocator>& allocator,
                                                     Links links = Links::kFollow, Pages pages = Pages::kCopy);
// The same of an open file. `in_place` gives the bytes of a tensor as they lie in it, or null where they are to be
// copied; null: all are.
// With `metadata`, that is filled in from the file's.
using InPlace = std::function<std::shared_ptr<Storage>(uint64_t offset, uint64_t bytes)>;
std::map<std::string, BundleTensor> read_safetensors(InputFile& file, const std::shared_ptr<Allocator>& allocator,
                                                     const InPlace& in_place,
                                                     std::map<std::string, std::string>* metadata = nullptr);
// Maps the file where it can be mapped.
InPlace pages_of(const InputFile& file);

}  // namespace sluice
