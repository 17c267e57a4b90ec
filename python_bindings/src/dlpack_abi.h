#pragma once
// The memory layout of DLPack 1.0 and of the unversioned form before it, as its specification fixes it
// (https://dmlc.github.io/dlpack/latest/c_api.html). Field names are ours.
#include <cstdint>

namespace sluice::python::dlpack {

inline constexpr int32_t kCpu = 1;
inline constexpr uint32_t kMajor = 1, kMinor = 0;
inline constexpr uint64_t kReadOnly = 1, kIsCopied = 2;
inline constexpr const char *kName = "dltensor", *kUsedName = "used_dltensor";
inline constexpr const char *kVersionedName = "dltensor_versioned", *kUsedVersionedName = "used_dltensor_versioned";

enum class Code : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBFloat = 4, kComplex = 5, kBool = 6 };

struct Array {
  void* data;
  int32_t device_kind;
  int32_t device_index;
  int32_t rank;
  Code code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; null: contiguous
  uint64_t byte_offset;
};

struct Managed {
  Array array;
  void* context;
  void (*release)(Managed*);
};

struct ManagedVersioned {
  uint32_t major, minor;
  void* context;
  void (*release)(ManagedVersioned*);
  uint64_t flags;
  Array array;
};

}  // namespace sluice::python::dlpack
