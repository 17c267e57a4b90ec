// Creation, and Python's subscript.
#include "graph/ops/creation.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/files/crc32c.h"
#include "base/files/record_index.h"
#include "base/files/sample_order.h"
#include "base/files/tar_members.h"
#include "bindings.h"
#include "graph/executor.h"
#include "graph/ops/comparison.h"
#include "graph/ops/images.h"
#include "kernels/cpu/images/image_reader.h"
#include "kernels/cpu/images/webp.h"
#include "subscript.h"
#include "tensor/trace.h"

namespace sluice::python {
namespace {

using MaybeDevice = std::optional<DeviceId>;

// Makes it on the device, or on the cpu; a graph places it itself.
template <class Make>
Value made_on(const MaybeDevice& device, Make make) {
  const bool here = !device || current_trace() != nullptr;
  const CreationScope there(here ? DeviceId{} : *device);
  return make();
}

void bind_functions(nb::module_& fn) {
  const auto device = nb::arg("device") = nb::none();
  fn.def(
      "full",
      [](const Shape& size, double value, DType dtype, const MaybeDevice& device) {
        return made_on(device, [&] { return ops::full(size, value, dtype); });
      },
      Release(), nb::arg("size"), nb::arg("value"), nb::arg("dtype"), device);
  fn.def(
      "arange",
      [](double start, double end, double step, DType dtype, const MaybeDevice& device) {
        return made_on(device, [&] { return ops::arange(start, end, step, dtype); });
      },
      Release(), nb::arg("start"), nb::arg("end"), nb::arg("step"), nb::arg("dtype"), device);
  fn.def(
      "linspace",
      [](double start, double end, int64_t steps, DType dtype, const MaybeDevice& device) {
        return made_on(device, [&] { return ops::linspace(start, end, steps, dtype); });
      },
      Release(), nb::arg("start"), nb::arg("end"), nb::arg("steps"), nb::arg("dtype"), device);
  fn.def(
      "eye",
      [](int64_t n, int64_t m, DType dtype, const MaybeDevice& device) {
        return made_on(device, [&] { return ops::eye(n, m, dtype); });
      },
      Release(), nb::arg("n"), nb::arg("m"), nb::arg("dtype"), device);
  fn.def(
      "empty",
      [](const Shape& size, DType dtype, const MaybeDevice& device) {
        return made_on(device, [&] { return Value(Tensor::empty({dtype, size})); });
      },
      Release(), nb::arg("size"), nb::arg("dtype"), device);
  fn.def(
      "number",
      [](const nb::object& value, DType dtype, const MaybeDevice& device) {
        if (is_long_int(value.ptr())) fail_long_int(value.ptr());
        std::optional<ops::Operand> number;
        SLUICE_CHECK_KIND(kType, operand_from(value, &number) && number->is_number(),
                          "number: got {}; must be a number", Py_TYPE(value.ptr())->tp_name);
        const nb::gil_scoped_release release;
        number->check_fits(dtype, "full");
        return made_on(device, [&] { return number->to(dtype); });
      },
      nb::arg("value").none(), nb::arg("dtype"), device, "A number as a tensor without axes; integers are exact.");
  fn.def(
      "decode_jpeg",
      [](const Value& files, const OptionalValue& boxes, const OptionalValue& flip, int64_t count, int64_t height,
         int64_t width,
         int64_t channels) { return ops::decode_jpeg(files, boxes, flip, count, height, width, channels); },
      Release(), nb::arg("files"), nb::arg("boxes").none(), nb::arg("flip").none(), nb::arg("count"), nb::arg("height"),
      nb::arg("width"), nb::arg("channels"));
  fn.def(
      "jpeg_shape",
      [](const nb::bytes& file) {
        return cpu::image_shape(std::as_bytes(std::span(file.c_str(), file.size())), cpu::ImageFormats::kJpeg);
      },
      nb::arg("file"), "(channels, height, width) of a JPEG file's content.");
  fn.def(
      "image_shape",
      [](const nb::bytes& file) {
        return cpu::image_shape(std::as_bytes(std::span(file.c_str(), file.size())), cpu::ImageFormats::kAny);
      },
      nb::arg("file"), "(channels, height, width) of the content of a file that decode_image takes.");
  fn.def(
      "image_formats",
      [] {
        std::vector<std::string> names = {"jpeg", "png"};
        if (cpu::reads_webp()) names.emplace_back("webp");
        return names;
      },
      "The formats of images that this build reads.");
}

// Places of samples in files.
void bind_sample_files(nb::module_& fn) {
  fn.def(
      "tar_members",
      [](const nb::bytes& path) {
        nb::list found;
        for (const TarMember& member : tar_members(std::string(path.c_str(), path.size())))
          found.append(nb::make_tuple(nb::bytes(member.name.data(), member.name.size()), member.offset, member.bytes));
        return found;
      },
      nb::arg("path"), nb::sig("def tar_members(path: bytes) -> list[tuple[bytes, int, int]]"),
      "(name, offset, bytes) of the regular files in a tar archive.");
  fn.def(
      "record_places",
      [](const nb::bytes& path, bool lengths) {
        const std::vector<RecordPlace> places = record_places(std::string(path.c_str(), path.size()), lengths);
        return nb::bytes(reinterpret_cast<const char*>(places.data()), places.size() * sizeof(RecordPlace));
      },
      nb::arg("path"), nb::arg("lengths"), nb::sig("def record_places(path: bytes, lengths: bool) -> bytes"),
      "Offset, bytes and label of each record in a file, as int64: by its index, or by all lengths.");
}

// Arithmetic of sluice.data.
void bind_samples(nb::module_& fn) {
  fn.def(
      "crc32c", [](const nb::bytes& data) { return crc32c(std::as_bytes(std::span(data.c_str(), data.size()))); },
      nb::arg("data"), "The check sum of record files, CRC-32C.");
  fn.def(
      "mixed",
      [](const nb::args& words) {
        std::vector<uint64_t> low;
        for (const nb::handle word : words) low.push_back(PyLong_AsUnsignedLongLongMask(word.ptr()));
        if (PyErr_Occurred() != nullptr) throw nb::python_error();
        return mixed(low);
      },
      "A hash of ints, of 64 bits: the same on every machine.");
  fn.def(
      "permute_positions",
      [](const nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& positions, uint64_t n, uint64_t key) {
        const std::span all(positions.data(), positions.size());
        SLUICE_CHECK(std::ranges::all_of(all, [n](uint64_t position) { return position < n; }),
                     "permute_positions: positions; must be below {}", n);
        std::ranges::transform(all, all.begin(), Permutation(n, key));
      },
      nb::arg("positions"), nb::arg("n"), nb::arg("key"),
      nb::sig("def permute_positions(positions: object, n: int, key: int) -> None"),
      "Replaces each position by where a permutation of 0 to n - 1, which the key names, leads from there.");
}

}  // namespace

void bind_creation(nb::module_& fn, nb::class_<Tensor>& tensor) {
  bind_functions(fn);
  bind_sample_files(fn);
  bind_samples(fn);
  tensor.def("_cast", &ops::cast, Release(), nb::arg("dtype"));
  tensor.def("__getitem__", &get_item, nb::arg("index").none());
  tensor.def("__setitem__", &set_item, nb::arg("index").none(), nb::arg("value"));
}

}  // namespace sluice::python
