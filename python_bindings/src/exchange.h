#pragma once
// Memory shared with other libraries: NumPy, the buffer protocol, DLPack. Nothing here copies.
//
// A tensor made of foreign memory keeps its owner alive; what is exported keeps the tensor's memory alive. Exporting
// waits for the graph steps that write the memory; the view is not ordered with steps that are submitted later.
#include <functional>
#include <string>

#include "bindings.h"

namespace sluice::python {

// A tensor of foreign memory; `release` runs without the GIL when its last owner goes. Memory that is `read_only`
// refuses every in-place write, eager or by a plan, with an error that names it.
Tensor share(const TensorSpec& spec, void* data, bool read_only, std::function<void()> release);
bool is_read_only(const Tensor& t);

// Waits until an exporter may touch the memory: until the steps that write it are done.
void wait_ready(const Tensor& t);
// The first element. Throws BufferError "<what>: ..." when `t` is traced, requires grad, or is not in host memory.
// The tensor, for whoever gets that address to hold while it may write there.
Tensor lent(const Tensor& t);
void* exported_data(const Tensor& t, const char* what);
[[noreturn]] void buffer_error(const std::string& message);

nb::object numpy_of(const Tensor& t);
// Slots of the class Tensor that make it an exporter of the buffer protocol.
PyType_Slot* buffer_slots();

void bind_arrays(nb::module_& m, nb::class_<Tensor>& tensor);
void bind_dlpack(nb::module_& m, nb::class_<Tensor>& tensor);

}  // namespace sluice::python
