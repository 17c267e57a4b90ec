// NumPy and the buffer protocol, both ways.
#include <nanobind/ndarray.h>

#include <bit>
#include <cstring>
#include <mutex>
#include <set>

#include "exchange.h"
#include "graph/tape.h"
#include "tensor/eager.h"
#include "tensor/trace.h"

namespace sluice::python {
namespace {

// Stands among a storage's users as one that never lets a writer through.
class ReadOnly final : public StorageUser {
 public:
  void wait_idle(bool writes_only) override {
    if (!writes_only)
      fail(ErrorKind::kRuntime, "in-place write: the memory is read-only: its owner does not allow writes; clone() it");
  }
};

struct Marks {
  std::mutex mutex;
  std::set<const Storage*> storages;
};

Marks& read_only_marks() {
  static auto* marks = new Marks();  // tensors may outlive main
  return *marks;
}

struct Format {
  const char* text;  // as the struct module writes it
  DType dtype;
};
constexpr Format kFormats[] = {
    {"?", DType::kBool},    {"B", DType::kUInt8},   {"b", DType::kInt8},       {"h", DType::kInt16},
    {"i", DType::kInt32},   {"l", DType::kInt64},   {"q", DType::kInt64},      {"e", DType::kFloat16},
    {"f", DType::kFloat32}, {"d", DType::kFloat64}, {"Zf", DType::kComplex64}, {"Zd", DType::kComplex128},
};
static_assert(sizeof(long) == 8);

std::optional<DType> dtype_of_format(const char* format) {
  if (format == nullptr) return DType::kUInt8;
  if (*format == '@' || *format == '=' || (*format == '<' && std::endian::native == std::endian::little)) ++format;
  for (const Format& known : kFormats)
    if (std::strcmp(known.text, format) == 0) return known.dtype;
  return {};
}

const char* format_of_dtype(DType dtype) {
  for (const Format& known : kFormats)
    if (known.dtype == dtype) return known.text;
  return nullptr;  // bfloat16
}

// A buffer that is released on whatever thread drops the last tensor of it.
std::shared_ptr<Py_buffer> acquire(nb::handle source, const char* where) {
  auto* view = new Py_buffer{};
  if (PyObject_GetBuffer(source.ptr(), view, PyBUF_RECORDS_RO) != 0) {
    delete view;
    const bool gives_none = PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_TypeError) ||
                            PyErr_ExceptionMatches(PyExc_ValueError);
    if (!gives_none) nb::raise_python_error();
    nb::python_error error;
    fail(ErrorKind::kType,
         "{}: got {}, which gives no buffer: {}; must be an array of bool, integers or floats on the "
         "CPU",
         where, Py_TYPE(source.ptr())->tp_name, nb::cast<std::string>(nb::str(nb::handle(error.value()))));
  }
  return {view, [](Py_buffer* held) {
            if (!Py_IsInitialized()) return;  // the interpreter took it along
            GilAcquire gil;
            PyBuffer_Release(held);
            delete held;
          }};
}

Tensor from_array(nb::handle source) {
  const auto view = acquire(source, "from_numpy");
  const std::optional<DType> dtype = dtype_of_format(view->format);
  if (!dtype)
    fail(ErrorKind::kType,
         "from_numpy: an array of dtype {} (format '{}'); supported are bool, uint8, int8, int16, int32, int64, "
         "float16, "
         "float32, float64, complex64, complex128 in native byte order",
         nb::cast<std::string>(nb::str(nb::getattr(source, "dtype", nb::str("unknown")))), view->format);
  if (view->ndim > kMaxRank)
    fail(ErrorKind::kValue, "from_numpy: the array has {} dims; at most {} are supported", view->ndim, int{kMaxRank});
  TensorSpec spec;
  spec.dtype = *dtype;
  const auto size = static_cast<int64_t>(dtype_size(*dtype));
  for (int i = 0; i < view->ndim; ++i) {
    const int64_t stride = view->shape[i] > 1 ? view->strides[i] : 0;
    if (stride < 0)
      fail(ErrorKind::kValue, "from_numpy: stride {} of dim {} is negative; copy the array first", stride, i);
    if (stride % size != 0)
      fail(ErrorKind::kValue,
           "from_numpy: stride {} bytes of dim {} is no multiple of the element's {}; copy the array "
           "first",
           stride, i, size);
    spec.shape.push_back(view->shape[i]);
    spec.strides.push_back(view->strides[i] < 0 ? 0 : view->strides[i] / size);
  }
  const size_t part = dtype_size(to_real(*dtype));
  if (reinterpret_cast<uintptr_t>(view->buf) % part != 0)
    fail(ErrorKind::kValue, "from_numpy: the array is not aligned to its elements of {} bytes; copy it first", size);
  return share(spec, view->buf, view->readonly != 0, [view] {});
}

// `count` elements (-1: all) of any exporter of contiguous memory, from byte `offset`; torch.frombuffer.
Tensor from_buffer(nb::handle source, DType dtype, int64_t count, int64_t offset) {
  const auto view = acquire(source, "frombuffer");
  const auto size = static_cast<int64_t>(dtype_size(dtype)), bytes = static_cast<int64_t>(view->len);
  if (!PyBuffer_IsContiguous(view.get(), 'C'))
    fail(ErrorKind::kValue, "frombuffer: the buffer is not contiguous; copy it first");
  if (bytes == 0 || count == 0)
    fail(ErrorKind::kValue, "frombuffer: both buffer length ({}) and count ({}) must not be 0", bytes, count);
  if (offset < 0 || offset >= bytes)
    fail(ErrorKind::kValue,
         "frombuffer: offset ({} bytes) must be non-negative and no greater than buffer length ({} "
         "bytes) minus 1",
         offset, bytes);
  if (count < 0 && (bytes - offset) % size != 0)
    fail(ErrorKind::kValue,
         "frombuffer: buffer length ({} bytes) after offset ({} bytes) must be a multiple of element "
         "size ({})",
         bytes, offset, size);
  if (count < 0) count = (bytes - offset) / size;
  if (count > (bytes - offset) / size)
    fail(ErrorKind::kValue, "frombuffer: {} elements of {} bytes after offset {} exceed the buffer's {} bytes", count,
         size, offset, bytes);
  char* data = static_cast<char*>(view->buf) + offset;
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(size) != 0)
    fail(ErrorKind::kValue, "frombuffer: offset {} is not aligned to elements of {} bytes; copy the buffer", offset,
         size);
  TensorSpec spec = TensorSpec::contiguous({dtype, Shape{count}});
  return share(spec, data, view->readonly != 0, [view] {});
}

// The memory that a memoryview of a tensor points into.
struct Exported {
  Tensor tensor;
  Py_ssize_t shape[kMaxRank];
  Py_ssize_t strides[kMaxRank];
};

void fill_view(nb::handle self, Py_buffer* view, int flags) {
  const Tensor& t = *nb::inst_ptr<Tensor>(self);
  const char* format = t.defined() ? format_of_dtype(t.dtype()) : nullptr;
  if (format == nullptr)
    buffer_error("buffer: bfloat16 has no format in the buffer protocol; use tensor.float() or DLPack");
  void* data = exported_data(t, "buffer");
  const bool read_only = is_read_only(t);
  if (read_only && (flags & PyBUF_WRITABLE) != 0) buffer_error("buffer: the tensor's memory is read-only; clone() it");
  auto exported = std::make_unique<Exported>();
  exported->tensor = lent(t);
  const auto size = static_cast<Py_ssize_t>(dtype_size(t.dtype()));
  for (int i = 0; i < t.rank(); ++i) {
    exported->shape[i] = t.shape()[i];
    exported->strides[i] = t.strides()[i] * size;
  }
  view->buf = data;
  view->len = t.size() * size;
  view->itemsize = size;
  view->readonly = read_only;
  view->ndim = t.rank();
  view->format = const_cast<char*>(format);
  view->shape = exported->shape;
  view->strides = exported->strides;
  view->suboffsets = nullptr;
  const auto order = [&](int flag, char name) {
    if ((flags & flag) == flag && !PyBuffer_IsContiguous(view, name))
      buffer_error("buffer: the tensor is not contiguous: " + t.strides().str() + "; use tensor.contiguous()");
  };
  order(PyBUF_C_CONTIGUOUS, 'C');
  order(PyBUF_F_CONTIGUOUS, 'F');
  order(PyBUF_ANY_CONTIGUOUS, 'A');
  if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) order(0, 'C');
  if ((flags & PyBUF_FORMAT) == 0) view->format = nullptr;
  if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) view->strides = nullptr;
  if ((flags & PyBUF_ND) != PyBUF_ND) view->shape = nullptr;
  view->internal = exported.release();
  view->obj = self.inc_ref().ptr();
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  try {
    fill_view(self, view, flags);
    return 0;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  }
  return -1;
}

void release_buffer(PyObject*, Py_buffer* view) { delete static_cast<Exported*>(view->internal); }

}  // namespace

void buffer_error(const std::string& message) {
  PyErr_SetString(PyExc_BufferError, message.c_str());
  throw nb::python_error();
}

Tensor share(const TensorSpec& spec, void* data, bool read_only, std::function<void()> release) {
  if (!read_only) return Tensor::borrow(spec, data, std::move(release));
  auto guard = std::make_shared<ReadOnly>();
  auto mark = std::make_shared<const Storage*>(nullptr);
  Tensor t = Tensor::borrow(spec, data, [guard, mark, release = std::move(release)] {
    {
      std::lock_guard lock(read_only_marks().mutex);
      read_only_marks().storages.erase(*mark);
    }
    release();
  });
  const std::shared_ptr<Storage>& storage = static_cast<EagerImpl*>(t.impl())->storage();
  *mark = storage.get();
  storage->attach(guard, false);
  std::lock_guard lock(read_only_marks().mutex);
  read_only_marks().storages.insert(storage.get());
  return t;
}

bool is_read_only(const Tensor& t) {
  if (t.traced()) return false;
  std::lock_guard lock(read_only_marks().mutex);
  return read_only_marks().storages.count(static_cast<EagerImpl*>(t.impl())->storage().get()) != 0;
}

void wait_ready(const Tensor& t) {
  if (!t.ready()) wait_tensors({t});
}

Tensor lent(const Tensor& t) { return Value(static_cast<EagerImpl*>(t.impl())->lend()); }

void* exported_data(const Tensor& t, const char* what) {
  if (t.traced())
    fail(ErrorKind::kRuntime,
         "{}: the tensor is traced and has no value while a graph is built; return it from build()", what);
  if (t.requires_grad())
    buffer_error(std::string(what) + ": can't export a tensor that requires gradient; use tensor.detach()");
  if (t.device() != DeviceId{})
    buffer_error(std::string(what) + ": the tensor is on " + t.device().str() +
                 ", whose memory others cannot read; use tensor.cpu()");
  wait_ready(t);
  GilRelease release;
  return const_cast<void*>(t.read(what));
}

nb::object numpy_of(const Tensor& t) {
  if (t.requires_grad() && grad_enabled())
    fail(ErrorKind::kRuntime, "numpy: the tensor requires grad; use tensor.detach().numpy()");
  if (t.dtype() == DType::kBFloat16)
    fail(ErrorKind::kType, "numpy: bfloat16 has no numpy dtype; use tensor.float().numpy()");
  if (!t.traced() && t.device() != DeviceId{})
    fail(ErrorKind::kType, "numpy: the tensor is on {}; use tensor.cpu().numpy()", t.device().str());
  if (t.traced())
    fail(ErrorKind::kRuntime,
         "numpy: the tensor is traced and has no value while a graph is built; return it from build()");
  wait_ready(t);
  void* data;
  {
    GilRelease release;
    data = const_cast<void*>(t.read("numpy"));
  }
  size_t shape[kMaxRank];
  int64_t strides[kMaxRank];
  for (int i = 0; i < t.rank(); ++i) {
    shape[i] = static_cast<size_t>(t.shape()[i]);
    strides[i] = t.strides()[i];
  }
  using Code = nb::dlpack::dtype_code;
  Code code = is_floating(t.dtype()) ? Code::Float : Code::Int;
  if (is_complex(t.dtype())) code = Code::Complex;
  if (t.dtype() == DType::kBool) code = Code::Bool;
  if (t.dtype() == DType::kUInt8) code = Code::UInt;
  const nb::dlpack::dtype dtype{static_cast<uint8_t>(code), static_cast<uint8_t>(dtype_size(t.dtype()) * 8), 1};
  nb::object array = nb::cast(nb::ndarray<nb::numpy>(data, t.rank(), shape, nb::cast(lent(t)), strides, dtype),
                              nb::rv_policy::reference);
  if (is_read_only(t)) array.attr("setflags")(nb::arg("write") = false);
  return array;
}

PyType_Slot* buffer_slots() {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                                {Py_bf_releasebuffer, reinterpret_cast<void*>(&release_buffer)},
                                {0, nullptr}};
  return slots;
}

void bind_arrays(nb::module_& m, nb::class_<Tensor>& tensor) {
  tensor.def("numpy", &numpy_of, nb::sig("def numpy(self) -> numpy.ndarray"),
             "The same memory as a NumPy array; waits for the graph steps that write it.");
  tensor.def_prop_ro("_read_only", &is_read_only);
  m.def(
      "from_array", [](nb::object array) -> Value { return from_array(array); }, nb::arg("array"),
      "Shares the memory of an exporter of the buffer protocol, with its shape and strides.");
  m.def(
      "from_buffer",
      [](nb::object buffer, DType dtype, int64_t count, int64_t offset) -> Value {
        return from_buffer(buffer, dtype, count, offset);
      },
      nb::arg("buffer"), nb::arg("dtype"), nb::arg("count") = -1, nb::arg("offset") = 0);
}

}  // namespace sluice::python
