// DLPack, both ways and in both of its forms.
#include "dlpack_abi.h"
#include "exchange.h"
#include "tensor/eager.h"

namespace sluice::python {
namespace {

struct TypeCode {
  DType dtype;
  dlpack::Code code;
  int bits;
};
constexpr TypeCode kCodes[] = {
    {DType::kBool, dlpack::Code::kBool, 8},          {DType::kUInt8, dlpack::Code::kUInt, 8},
    {DType::kInt8, dlpack::Code::kInt, 8},           {DType::kInt16, dlpack::Code::kInt, 16},
    {DType::kInt32, dlpack::Code::kInt, 32},         {DType::kInt64, dlpack::Code::kInt, 64},
    {DType::kFloat16, dlpack::Code::kFloat, 16},     {DType::kBFloat16, dlpack::Code::kBFloat, 16},
    {DType::kFloat32, dlpack::Code::kFloat, 32},     {DType::kFloat64, dlpack::Code::kFloat, 64},
    {DType::kComplex64, dlpack::Code::kComplex, 64}, {DType::kComplex128, dlpack::Code::kComplex, 128},
};

// The exporter's side: what the struct points into lives beside it.
template <class Struct>
struct Export {
  Struct managed{};
  Tensor tensor;
  int64_t shape[kMaxRank];
  int64_t strides[kMaxRank];
};

template <class Struct>
void release_export(Struct* managed) {
  delete static_cast<Export<Struct>*>(managed->context);
}

template <class Struct>
Export<Struct>* export_of(const Tensor& t, void* data) {
  auto* e = new Export<Struct>();
  e->tensor = lent(t);
  for (int i = 0; i < t.rank(); ++i) {
    e->shape[i] = t.shape()[i];
    e->strides[i] = t.strides()[i];
  }
  for (const TypeCode& known : kCodes)
    if (known.dtype == t.dtype())
      e->managed.array = {t.size() == 0 ? nullptr : data,
                          dlpack::kCpu,
                          0,
                          t.rank(),
                          known.code,
                          static_cast<uint8_t>(known.bits),
                          1,
                          e->shape,
                          e->strides,
                          0};
  e->managed.context = e;
  e->managed.release = &release_export<Struct>;
  return e;
}

// A capsule that nobody took releases what it holds.
template <class Struct>
void drop_capsule(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<Struct*>(PyCapsule_GetPointer(capsule, name));
  if (managed->release != nullptr) managed->release(managed);
}

nb::object to_dlpack(const Tensor& given, nb::object stream, nb::object max_version, nb::object dl_device,
                     nb::object copy) {
  void* data = exported_data(given, "__dlpack__");
  int64_t number = 0;
  if (!stream.is_none() && !(nb::try_cast(stream, number) && number == -1))
    buffer_error("__dlpack__: stream must be None or -1 for memory of the host");
  if (!dl_device.is_none() && nb::cast<int>(dl_device[0]) != dlpack::kCpu)
    buffer_error("__dlpack__: the tensor is on the CPU (1, 0); it cannot be exported to another device");
  const bool copied = !copy.is_none() && nb::cast<bool>(copy);
  Tensor t = given;
  if (copied) {
    GilRelease release;
    t = given.detach().clone();
    data = const_cast<void*>(t.read("__dlpack__"));
  }
  const bool versioned = !max_version.is_none() && nb::cast<uint32_t>(max_version[0]) >= dlpack::kMajor;
  const bool read_only = is_read_only(t);
  PyObject* capsule = nullptr;
  if (versioned) {
    auto* e = export_of<dlpack::ManagedVersioned>(t, data);
    e->managed.major = dlpack::kMajor;
    e->managed.minor = dlpack::kMinor;
    e->managed.flags = (read_only ? dlpack::kReadOnly : 0) | (copied ? dlpack::kIsCopied : 0);
    capsule = PyCapsule_New(&e->managed, dlpack::kVersionedName, [](PyObject* dropped) {
      drop_capsule<dlpack::ManagedVersioned>(dropped, dlpack::kVersionedName);
    });
    if (capsule == nullptr) delete e;
  } else {
    if (read_only)
      buffer_error("__dlpack__: the tensor's memory is read-only, which only DLPack 1.0 can say; clone() it");
    auto* e = export_of<dlpack::Managed>(t, data);
    capsule = PyCapsule_New(&e->managed, dlpack::kName,
                            [](PyObject* dropped) { drop_capsule<dlpack::Managed>(dropped, dlpack::kName); });
    if (capsule == nullptr) delete e;
  }
  if (capsule == nullptr) throw nb::python_error();
  return nb::steal(capsule);
}

TensorSpec spec_of(const dlpack::Array& array) {
  if (array.device_kind != dlpack::kCpu)
    buffer_error(fmt::format("from_dlpack: the tensor is on DLPack device ({}, {}); must be on the CPU (1, 0)",
                             array.device_kind, array.device_index));
  if (array.rank < 0 || array.rank > kMaxRank)
    buffer_error(
        fmt::format("from_dlpack: the tensor has {} dims; at most {} are supported", array.rank, int{kMaxRank}));
  TensorSpec spec;
  bool known = false;
  for (const TypeCode& type : kCodes) {
    if (type.code != array.code || type.bits != array.bits || array.lanes != 1) continue;
    spec.dtype = type.dtype;
    known = true;
  }
  if (!known)
    buffer_error(
        fmt::format("from_dlpack: elements of type code {} with {} bits and {} lanes; supported are bool, uint8, "
                    "int8, int16, int32, int64, float16, bfloat16, float32, float64",
                    int(array.code), array.bits, array.lanes));
  for (int i = 0; i < array.rank; ++i) spec.shape.push_back(array.shape[i]);
  spec.strides = contiguous_strides(spec.shape);
  for (int i = 0; i < array.rank && array.strides != nullptr; ++i) {
    if (array.strides[i] < 0 && array.shape[i] > 1)
      buffer_error(
          fmt::format("from_dlpack: stride {} of dim {} is negative; copy the tensor first", array.strides[i], i));
    spec.strides[i] = std::max<int64_t>(array.strides[i], 0);
  }
  return spec;
}

// Takes the tensor out of a capsule; its exporter hears of the end when the last of our tensors goes.
template <class Struct>
Tensor take(PyObject* capsule, const char* name, const char* used_name, bool read_only) {
  auto* managed = static_cast<Struct*>(PyCapsule_GetPointer(capsule, name));
  const dlpack::Array& array = managed->array;
  const TensorSpec spec = spec_of(array);  // throws before the capsule is marked as used
  char* data = static_cast<char*>(array.data) + array.byte_offset;
  if (reinterpret_cast<uintptr_t>(data) % dtype_size(spec.dtype) != 0)
    buffer_error("from_dlpack: the memory is not aligned to its elements; copy the tensor first");
  if (PyCapsule_SetName(capsule, used_name) != 0) throw nb::python_error();
  return share(spec, data, read_only, [managed] {
    if (managed->release == nullptr || !Py_IsInitialized()) return;
    GilAcquire gil;  // exporters written in Python's C API expect it
    managed->release(managed);
  });
}

Tensor from_capsule(nb::handle capsule) {
  PyObject* object = capsule.ptr();
  if (PyCapsule_IsValid(object, dlpack::kVersionedName)) {
    auto* managed = static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(object, dlpack::kVersionedName));
    if (managed->major > dlpack::kMajor)
      buffer_error(fmt::format("from_dlpack: the capsule is of DLPack {}.{}; at most {}.x is supported", managed->major,
                               managed->minor, dlpack::kMajor));
    const bool read_only = (managed->flags & dlpack::kReadOnly) != 0;
    return take<dlpack::ManagedVersioned>(object, dlpack::kVersionedName, dlpack::kUsedVersionedName, read_only);
  }
  if (PyCapsule_IsValid(object, dlpack::kName))
    return take<dlpack::Managed>(object, dlpack::kName, dlpack::kUsedName, false);
  if (PyCapsule_IsValid(object, dlpack::kUsedName) || PyCapsule_IsValid(object, dlpack::kUsedVersionedName))
    fail(ErrorKind::kRuntime, "from_dlpack: the capsule was consumed already; a capsule serves once");
  fail(ErrorKind::kType, "from_dlpack: got {}; must have __dlpack__, or be a DLPack capsule", Py_TYPE(object)->tp_name);
}

}  // namespace

void bind_dlpack(nb::module_& m, nb::class_<Tensor>& tensor) {
  tensor
      .def("__dlpack__", &to_dlpack, nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
           nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, "
                   "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> typing.Any"))
      .def(
          "__dlpack_device__",
          [](const Tensor& t) {
            if (t.traced() || t.device() != DeviceId{})
              buffer_error("__dlpack_device__: the tensor is " + (t.traced() ? "traced" : "on " + t.device().str()) +
                           "; only memory of the host can be exported");
            return nb::make_tuple(dlpack::kCpu, 0);
          },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"));
  m.def(
      "from_dlpack_capsule", [](nb::object capsule) -> Value { return from_capsule(capsule); }, nb::arg("capsule"));
}

}  // namespace sluice::python
