#include "runtime/bundle/safetensors.h"

#include <cstring>

#include "fuzz_targets/scratch.h"
#include "fuzz_targets/targets.h"

namespace sluice::fuzz {

int safetensors(const uint8_t* data, size_t size) {
  const std::string path = scratch_file("in.safetensors", {reinterpret_cast<const char*>(data), size});
  std::map<std::string, BundleTensor> tensors;
  try {
    tensors = read_safetensors(path, make_host_allocator());
  } catch (const Error& error) {
    expect(std::string_view(error.what()).starts_with(path + ": "), "safetensors: the error names no file",
           error.what());
    return 0;
  }
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.spec.extent_bytes();
  expect(bytes <= size, "safetensors: more data than the file has");
  const std::string copy = scratch() + "/out.safetensors";
  write_safetensors(copy, tensors);
  const std::map<std::string, BundleTensor> again = read_safetensors(copy, make_host_allocator());
  expect(again.size() == tensors.size(), "safetensors: not as many after writing and reading");
  for (const auto& [name, tensor] : tensors) {
    const auto it = again.find(name);
    expect(it != again.end() && it->second.spec == tensor.spec, "safetensors: not the same tensor again", name);
    expect(std::memcmp(it->second.storage->data(), tensor.storage->data(), tensor.spec.extent_bytes()) == 0,
           "safetensors: not the same data again", name);
  }
  return 0;
}

}  // namespace sluice::fuzz
