// The class Tensor: data, memory and autograd. Mathematics is added by math.cpp and movement.cpp.
#include "tensor/tensor.h"

#include <nanobind/stl/shared_ptr.h>

#include <cctype>
#include <chrono>

#include "bindings.h"
#include "compiler/boxing_path.h"
#include "exchange.h"
#include "graph/calls/call_fix.h"
#include "graph/ops/creation.h"
#include "graph/ops/global.h"
#include "graph/ops/movement.h"
#include "graph/tape.h"
#include "tensor/eager.h"
#include "tensor/trace.h"
#include "tensor/trace_executor.h"
#include "tensor_object.h"

namespace sluice::python {
namespace {

// The strides of dims of more than one element are these.
bool same_layout(const TensorSpec& spec, const Strides& strides) {
  for (int i = 0; i < spec.shape.rank(); ++i)
    if (spec.shape[i] > 1 && spec.strides[i] != strides[i]) return false;
  return true;
}

// Nested lists of numbers, from the innermost dim outwards.
nb::object to_list(const Tensor& t, const char* bytes, int dim) {
  if (dim == t.rank()) {
    switch (t.dtype()) {
      case DType::kBool: return nb::cast(*reinterpret_cast<const bool*>(bytes));
      case DType::kInt64: return nb::cast(*reinterpret_cast<const int64_t*>(bytes));
      case DType::kComplex128: {
        const auto* parts = reinterpret_cast<const double*>(bytes);
        return nb::steal(PyComplex_FromDoubles(parts[0], parts[1]));
      }
      default: return nb::cast(*reinterpret_cast<const double*>(bytes));
    }
  }
  nb::list list;
  const int64_t step = t.strides()[dim] * static_cast<int64_t>(dtype_size(t.dtype()));
  for (int64_t i = 0; i < t.shape()[dim]; ++i) list.append(to_list(t, bytes + i * step, dim + 1));
  return list;
}

// The widest dtype of the kind, which is that of Python's numbers.
DType widest(DType dtype) {
  if (is_complex(dtype)) return DType::kComplex128;
  return is_floating(dtype) ? DType::kFloat64 : DType::kInt64;
}

nb::object tolist(const Tensor& t) {
  wait_ready(t);
  Tensor wide;
  const char* bytes;
  {
    GilRelease release;
    GradMode no_grad(false);
    wide = t.detach();
    if (!t.traced()) {
      auto& impl = static_cast<EagerImpl&>(*wide.impl());
      impl.check_whole("tolist");
      impl.lay(nullptr, impl.type());
    }
    wide = wide.to(DeviceId{});
    wide = t.dtype() == DType::kBool ? wide : wide.to(widest(t.dtype()));
    bytes = static_cast<const char*>(wide.read("tolist"));
  }
  return to_list(wide, bytes, 0);
}

nb::object item(const Tensor& t) {
  if (TraceExecutor* const trace = current_trace(); trace != nullptr && trace->touches_graph(t))
    if (const Tensor known = trace->settled(t); known.defined()) return item(known);
  if (t.traced()) {
    const SourceLocation line = CallFixes::line();
    throw FixableError(
        ErrorKind::kRuntime,
        "item: the tensor is traced and has no value while a graph is built; return it from build() instead",
        line.known() ? Fix{{"line", line.str()}, {"rewrite", std::string("where")}} : Fix());
  }
  wait_ready(t);
  if (is_complex(t.dtype()) && t.size() == 1) return tolist(Value(ops::reshape(t.detach(), {})));
  Attr value;
  {
    GilRelease release;
    value = t.item();
  }
  if (const bool* b = std::get_if<bool>(&value)) return nb::cast(*b);
  if (const int64_t* i = std::get_if<int64_t>(&value)) return nb::cast(*i);
  return nb::cast(std::get<double>(value));
}

// `p.data = x`: the object keeps its identity, flags, gradient and hooks, and gets other memory.
void set_data(nb::handle_t<Tensor> object, const Value& data) {
  const Tensor& self = *nb::inst_ptr<Tensor>(object);
  Tensor replaced = Tensor(data).detach();
  const Tensor grad = self.grad();
  if (self.requires_grad()) {
    replaced.set_requires_grad(true);
    if (self.is_leaf()) gradient_edge(replaced).node->hooks = std::move(gradient_edge(self).node->hooks);
  }
  if (grad.defined()) replaced.set_grad(grad);
  become_tensor(object.ptr(), replaced);
}

// The same memory, whose writes autograd does not see. Inside a graph it must: a view of it is read anew after them.
Value data_of(const Tensor& self) {
  GilRelease release;
  if (current_trace() != nullptr || self.traced()) return self.detach();
  const auto& impl = static_cast<EagerImpl&>(*self.impl());
  const auto same = std::make_shared<EagerImpl>(impl.storage(), impl.spec(), impl.device(), nullptr, impl.offset());
  same->global = impl.global;
  return Value(same);
}

Value run_hook(const SharedObject& hook, const Value& grad) {
  GilAcquire gil;
  nb::object result = hook.get()(grad);
  Value value;
  if (!result.is_none() && !nb::try_cast(result, value))
    fail(ErrorKind::kType, "hook: expected Variable, but hook returned '{}'; must be a Tensor or None",
         Py_TYPE(result.ptr())->tp_name);
  return value;
}

// (mesh, sbp) of a global tensor.
nb::object global_of(const Tensor& t) {
  const auto* impl = dynamic_cast<const EagerImpl*>(t.impl());
  if (!impl || !impl->global) return nb::none();
  return nb::make_tuple(impl->global->mesh.str(), impl->global->sbp.str());
}

bool is_component(const Tensor& t) {
  const auto* impl = dynamic_cast<const EagerImpl*>(t.impl());
  return impl && impl->global && impl->global->component;
}

// The same memory, global or local; a leaf that requires a gradient stays one.
Value with_global(const Tensor& t, std::shared_ptr<const GlobalTensor> global, const TensorType& type) {
  if (!t.is_leaf())
    fail(ErrorKind::kUnsupported, "{}: the tensor has a gradient history: {}; move leaves, or move it inside nn.Graph",
         global ? "to_global" : "to_local", t.type().str());
  const Tensor same = t.detach();
  static_cast<EagerImpl&>(*same.impl()).lay(std::move(global), type);
  if (t.requires_grad()) same.set_requires_grad(true);
  return same;
}

// `whole`: the logical shape, of which the tensor is this rank's component.
Value to_global(const Tensor& t, const std::string& mesh, const std::string& sbp, const std::optional<Shape>& whole) {
  const bool present = true;
  const TensorType type{t.dtype(), whole.value_or(t.shape())};
  GlobalTensor global{{parse_mesh(mesh), parse_nd_sbp(sbp)}, std::nullopt};
  infer_types(ops::to_global_op(), {&type, 1}, {&present, 1}, ops::to_global_attrs(global));  // checks both
  if (whole) global.component = t.spec();
  return with_global(t, std::make_shared<GlobalTensor>(std::move(global)), type);
}

// A node as torch spells it: of the op mul it is MulBackward0. Those of functions of users have names of their own.
std::string torch_name(const std::string& name) {
  if (name.empty() || std::isupper(static_cast<unsigned char>(name[0])) || name.find("Backward") != std::string::npos)
    return name;
  std::string spelled;
  for (size_t i = 0; i < name.size(); ++i)
    if (name[i] != '_') {
      const auto c = static_cast<unsigned char>(name[i]);
      spelled += static_cast<char>(i == 0 || name[i - 1] == '_' ? std::toupper(c) : c);
    }
  return spelled + "Backward0";
}

void bind_autograd_members(nb::class_<Tensor>& t) {
  t.def_prop_rw(
       "requires_grad", [](const Tensor& t) { return t.requires_grad(); },
       [](const Tensor& t, bool on) { t.set_requires_grad(on); })
      .def(
          "requires_grad_",
          [](nb::handle_t<Tensor> self, bool on) {
            nb::inst_ptr<Tensor>(self)->set_requires_grad(on);
            return nb::borrow(self);
          },
          nb::arg("requires_grad") = true, nb::sig("def requires_grad_(self, requires_grad: bool = True) -> Tensor"))
      .def_prop_ro("is_leaf", &Tensor::is_leaf)
      .def_prop_rw(
          "grad", [](const Tensor& t) -> Value { return t.grad(); },
          [](const Tensor& t, const OptionalValue& g) { t.set_grad(g.value); }, nb::for_setter(nb::arg("grad").none()))
      .def_prop_ro("grad_fn",
                   [](const Tensor& t) {
                     return t.impl()->autograd ? t.impl()->autograd->grad_fn : std::shared_ptr<GradNode>();
                   })
      .def("retain_grad", &Tensor::retain_grad)
      .def_prop_ro("retains_grad",
                   [](const Tensor& t) { return t.impl()->autograd && t.impl()->autograd->retain_grad; })
      .def("_add_hook",
           [](const Tensor& t, nb::callable hook) {
             return t.add_hook([hook = SharedObject(hook)](const Value& grad) { return run_hook(hook, grad); });
           })
      .def("_add_post_accumulate_grad_hook",
           [](const Tensor& t, nb::callable hook) {
             return t.add_post_accumulate_grad_hook(
                 [hook = SharedObject(hook)](const Value& leaf) { run_hook(hook, leaf); });
           })
      .def("_remove_hook", &Tensor::remove_hook)
      .def_prop_rw("data", &data_of, &set_data);
}

void bind_grad_nodes(nb::module_& m) {
  nb::class_<GradNode>(m, "GradNode", nb::is_weak_referenceable())
      .def("name", [](const GradNode& node) { return torch_name(node.name()); })
      .def_prop_ro("next_functions",
                   [](const GradNode& node) {
                     nb::list list;
                     for (const GradNode::Next& next : node.next) list.append(nb::make_tuple(next.node, next.index));
                     return nb::tuple(list);
                   })
      .def("__repr__", [](const GradNode& node) { return "<" + torch_name(node.name()) + ">"; });
}

void bind_tensor_making(nb::class_<Tensor>& t) {
  t.def("__init__",
        [](nb::pointer_and_handle<Tensor> self, const Value& other) {
          new (self.p) Tensor(other);
          claim_tensor(self.h.ptr());
        })
      .def("__init__", [](nb::pointer_and_handle<Tensor> self, const nb::args& args,
                          const nb::kwargs& kwargs) {  // torch.Tensor(2, 3), torch.Tensor([1])
        const nb::object made = nb::module_::import_("sluice._tensor.dtypes").attr("new_tensor")(*args, **kwargs);
        new (self.p) Tensor(nb::cast<Value>(made));
        claim_tensor(self.h.ptr());
      });
}

// These members tell the type, and how the elements lie in memory.
void bind_shape_members(nb::class_<Tensor>& t) {
  t.def_prop_ro("_shape", [](const Tensor& t) { return t.shape(); })
      .def_prop_ro("_traced", [](const Tensor& t) { return t.traced(); })
      .def_prop_ro("dtype", [](const Tensor& t) { return t.dtype(); })
      .def_prop_ro("_device", [](const Tensor& t) { return t.device().str(); })
      .def_prop_ro("ndim", [](const Tensor& t) { return t.rank(); })
      .def("dim", [](const Tensor& t) { return t.rank(); })
      .def("_strides",
           [](const Tensor& t) {
             strides_told(t);
             return t.strides();
           })
      .def("storage_offset", &Tensor::storage_offset)
      .def(
          "is_contiguous",
          [](const Tensor& t, const std::string& format) {
            strides_told(t);
            if (format == "contiguous_format") return t.is_contiguous();
            const int rank = format == "channels_last" ? 4 : 5;
            SLUICE_CHECK(rank == 4 || format == "channels_last_3d",
                         "is_contiguous: memory_format is '{}'; must be contiguous_format, channels_last or "
                         "channels_last_3d",
                         format);
            return t.rank() == rank && same_layout(t.spec(), channels_last_strides(t.shape()));
          },
          nb::arg("memory_format") = "contiguous_format");
}

// These members tell whose memory it is, and whether and where its contents are there.
void bind_memory_members(nb::class_<Tensor>& t) {
  t.def("_is_view", &Tensor::is_view)
      .def_prop_ro("_base", [](const Tensor& t) { return Value(static_cast<TensorImpl*>(t.impl())->base()); })
      .def_prop_ro("_traced", &Tensor::traced)
      .def_prop_ro("_version", [](const Tensor& t) { return t.impl()->version(); })
      .def_prop_ro("_impl", [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.impl()); })
      .def("__hash__", [](nb::handle self) { return reinterpret_cast<uintptr_t>(self.ptr()) >> 4; })
      .def(
          "data_ptr",
          [](const Tensor& t) {
            if (t.traced()) fail(ErrorKind::kRuntime, "data_ptr: a traced tensor has no memory of its own");
            const auto* impl = static_cast<EagerImpl*>(t.impl());
            impl->storage()->lend();  // for good: nobody says when the address is no longer used
            return reinterpret_cast<uintptr_t>(impl->data());
          },
          Release())
      .def("is_ready", &Tensor::ready, "True when reading would not wait for a graph's step.")
      .def(
          "sync",
          [](nb::object self) {
            const Tensor t(nb::cast<Value>(self));
            if (t.traced()) fail(ErrorKind::kRuntime, "sync: a traced tensor has no memory; sync what the graph gives");
            {
              GilRelease release;
              static_cast<EagerImpl*>(t.impl())->storage()->before_read();
            }
            return self;
          },
          "Waits for the steps of graphs that make its contents, throws their error, and returns the tensor.");
}

void bind_place_members(nb::class_<Tensor>& t) {
  t.def(
       "_to_device", [](const Tensor& t, const DeviceId& d) -> Value { return t.to(d); }, Release())
      .def_prop_ro("_global", &global_of)
      .def_prop_ro("_is_component", &is_component)
      .def("_to_global", &to_global, nb::arg("mesh"), nb::arg("sbp"), nb::arg("whole") = nb::none())
      .def("_to_local", [](const Tensor& t) -> Value { return with_global(t, nullptr, t.type()); });
}

void bind_write_members(nb::class_<Tensor>& t) {
  t.def(
       "_update",
       [](const Value& t, nb::callable compute) {
         update_in_place(t, [&](const Value& old) {
           const nb::object result = compute(old);
           Value value;
           if (!nb::try_cast(result, value)) {  // an operand took over: numpy's arrays do
             fail(ErrorKind::kType, "in-place op: its operands give {}; they must give a tensor",
                  Py_TYPE(result.ptr())->tp_name);
           }
           return value;
         });
       },
       "Replaces the content by compute(old content).")
      .def(
          "_write", [](const Value& t, const Value& source) { write_in_place(t, source); }, Release());
}

void bind_meshes(nb::module_& m) {
  m.def(
      "parse_mesh", [](const std::string& mesh) { return parse_mesh(mesh).str(); }, nb::arg("mesh"));
  m.def(
      "mesh_devices",
      [](const std::string& mesh) {
        std::vector<std::string> names;
        const DeviceMesh devices = parse_mesh(mesh);
        for (const DeviceId& device : devices.devices()) names.push_back(device.str());
        return names;
      },
      nb::arg("mesh"));
  m.def(
      "mesh_axes",
      [](const std::string& mesh) {
        std::vector<std::pair<std::string, int>> axes;
        const DeviceMesh devices = parse_mesh(mesh);
        for (const DeviceMesh::Axis& axis : devices.axes()) axes.emplace_back(axis.name, axis.size);
        return axes;
      },
      nb::arg("mesh"), "The name, \"\" for none, and the size of each axis.");
  m.def(
      "layout_spans",
      [](const Shape& shape, const std::string& mesh, const std::string& sbp) {
        const DeviceMesh devices = parse_mesh(mesh);
        std::vector<Spans> spans;
        for (int i = 0; i < devices.size(); ++i)
          spans.push_back(spans_of(shape, shape_of(devices), parse_nd_sbp(sbp), i));
        return spans;
      },
      nb::arg("shape"), nb::arg("mesh"), nb::arg("sbp"), "What each device has: start and end of each dim.");
  m.def(
      "boxing_path",
      [](const Shape& shape, const std::pair<std::string, std::string>& from,
         const std::pair<std::string, std::string>& to) {
        const auto spread = [&](const std::pair<std::string, std::string>& lies) {
          const DeviceMesh mesh = parse_mesh(lies.first);
          const NdSbp sbp = parse_nd_sbp(lies.second);
          check_layout(shape, mesh, sbp, "a tensor of shape " + shape.str());
          return compiler::spread_over(mesh, sbp);
        };
        nb::list path;
        for (const auto& step : compiler::boxing_path({DType::kInt8, shape}, spread(from), spread(to)))
          path.append(nb::make_tuple(step.to.mesh.str(), step.to.sbp.str(), step.bytes));
        return path;
      },
      nb::arg("shape"), nb::arg("source"), nb::arg("target"),
      "The cheapest steps from lying (mesh, sbp) to lying so: mesh, sbp, and elements that travel.");
}

}  // namespace

void wait_tensors(const std::vector<Tensor>& tensors) {
  GilRelease release;
  for (const Tensor& t : tensors) {
    while (!t.wait_for(std::chrono::hours(1))) {
    }
  }
}

nb::class_<Tensor> bind_tensor(nb::module_& m) {
  bind_grad_nodes(m);
  nb::class_<Tensor> t(m, "Tensor", nb::dynamic_attr(), nb::is_weak_referenceable(), nb::type_slots(buffer_slots()),
                       "A multi-dimensional array; see torch.Tensor.");
  own_tensor_objects(reinterpret_cast<PyTypeObject*>(t.ptr()));
  bind_tensor_making(t);
  bind_shape_members(t);
  bind_memory_members(t);
  t.def("item", &item).def("tolist", &tolist);
  bind_place_members(t);
  bind_write_members(t);
  bind_autograd_members(t);
  bind_copies(m);
  bind_arrays(m, t);
  bind_dlpack(m, t);
  bind_meshes(m);
  m.def(
      "wait",
      [](const std::vector<Value>& tensors) {
        wait_tensors({tensors.begin(), tensors.end()});
      },
      nb::arg("tensors"), "Waits until the steps that make these tensors are done.");
  return t;
}

}  // namespace sluice::python
