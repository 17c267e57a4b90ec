// The ranks of a job, for sluice.distributed: collectives on eager tensors, and carriers that are written in Python.
#include <atomic>
#include <chrono>
#include <mutex>

#include "bindings.h"
#include "gil.h"
#include "live_graphs.h"
#include "streams/collective/carrier.h"
#include "streams/collective/world.h"
#include "tensor/eager.h"
#include "tensor/session/ranks_agree.h"

namespace sluice::python {
namespace {

using namespace sluice::collective;

// Calls an object of Python's. Its errors are Sluice's, and say which method has raised them.
class PyCarrier final : public collective::Carrier {
 public:
  PyCarrier(std::string name, nb::object object)
      : name_(std::move(name)), object_(shared_with_gil(std::move(object))) {}

  void send(int to, uint64_t key, std::vector<std::byte> message) override {
    call("send", [&] {
      (void)object_->attr("send")(to, key, nb::bytes(reinterpret_cast<const char*>(message.data()), message.size()));
    });
  }
  std::vector<std::byte> receive(int from, uint64_t key) override {
    std::vector<std::byte> message;
    call("receive", [&] {
      const nb::object got = object_->attr("receive")(from, key);
      SLUICE_CHECK_KIND(kType, nb::isinstance<nb::bytes>(got), "returned {}; must be bytes",
                        nb::type_name(got.type()).c_str());
      const auto bytes = nb::cast<nb::bytes>(got);
      const auto* const data = reinterpret_cast<const std::byte*>(bytes.c_str());
      message.assign(data, data + bytes.size());
    });
    return message;
  }
  void fail(const std::string& text) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.ok()) return;
      failure_ = Status(ErrorKind::kRuntime, text);
    }
    try {
      call("fail", [&] { (void)object_->attr("fail")(text); });
    } catch (const Error&) {  // the first failure is the one to tell
    }
  }
  Status failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  void leave(const std::string& failure) noexcept override {
    if (!failure.empty()) fail(failure);
    if (left_.exchange(true)) return;
    try {
      call("close", [&] { (void)object_->attr("close")(); });
    } catch (const Error&) {  // nobody is left to be told
    }
  }

 private:
  template <class F>
  void call(const char* method, F&& f) {
    const GilAcquire gil;
    try {
      f();
    } catch (nb::python_error& error) {
      const ErrorKind kind = error.matches(PyExc_TimeoutError) ? ErrorKind::kTimeout : ErrorKind::kRuntime;
      throw Error(kind, fmt::format("carrier '{}': {}: {}", name_, method, nb::str(error.value()).c_str()));
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("carrier '{}': {}: {}", name_, method, error.what()));
    }
  }

  const std::string name_;
  const std::shared_ptr<nb::object> object_;
  mutable std::mutex mutex_;
  Status failure_;
  std::atomic<bool> left_{false};
};

// The function that makes carriers of a name.
void register_python_carrier(const std::string& name, nb::object make) {
  const auto maker = shared_with_gil(std::move(make));
  collective::register_carrier(name, [name, maker](const WorldOptions& options) {
    const GilAcquire gil;
    try {
      const auto seconds = std::chrono::duration<double>(options.timeout).count();
      return std::make_shared<PyCarrier>(name, (*maker)(options.rank, options.size, seconds));
    } catch (nb::python_error& error) {
      fail(ErrorKind::kRuntime, "carrier '{}': {}", name, nb::str(error.value()).c_str());
    }
  });
}

struct PyWorld {
  std::shared_ptr<World> world;
  Communicator* all = nullptr;
  std::vector<int> local_ranks{};
  ~PyWorld() {
    GilRelease release;
    world.reset();
  }
};

void make_world(PyWorld* self, int rank, int size, const std::string& host, int port, const std::string& token,
                double timeout, double heartbeat, int local_rank, const std::string& carrier) {
  const auto limit = [](double seconds, const char* name) {
    SLUICE_CHECK(seconds > 0 && seconds < 1e6, "distributed.init: {} is {} s; it must be positive, at most 1000000",
                 name, seconds);
    return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  };
  WorldOptions options;
  options.rank = rank;
  options.size = size;
  options.master = {host, port};
  options.token = token;
  options.timeout = limit(timeout, "timeout");
  options.heartbeat = limit(heartbeat, "heartbeat");
  options.carrier = carrier;
  std::shared_ptr<World> world;
  std::vector<int> local_ranks(size);
  {
    GilRelease release;
    world = std::make_shared<World>(options);
    world->control().all_gather(&local_rank, local_ranks.data(), sizeof local_rank);
  }
  join_world(world);
  new (self) PyWorld{world, &world->all(), std::move(local_ranks)};
}

// Graphs of the ranks end before the job does: others may still want what is on its way.
void leave(PyWorld& self, const std::string& failure) {
  if (failure.empty()) close_graphs_of_ranks();
  join_world(nullptr);
  self.world->leave(failure);
}

ReduceOp reduce_op(const std::string& name) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAverage}) {
    if (name == reduce_op_name(op)) return op;
  }
  fail(ErrorKind::kValue, "distributed: op is '{}'; it must be sum, product, min, max or average", name);
}

// The contents as contiguous memory: the tensor's own where it lies so, else a copy.
Tensor contiguous_of(const Value& value, const char* what) {
  const Tensor t(value);
  SLUICE_CHECK_KIND(kRuntime, !t.traced(),
                    "{}: the tensor is traced and has no value while a graph is built; call it on results of graphs",
                    what);
  SLUICE_CHECK_KIND(kUnsupported, t.device() == DeviceId{},
                    "{}: the tensor is on {}; collectives of tensors run in host memory, use tensor.cpu()", what,
                    t.device().str());
  return Tensor(t.detach()).contiguous();
}

// Runs f on contiguous memory that holds what `value` holds and that becomes its contents.
template <class F>
void in_place(const Value& value, const char* what, F&& f) {
  const Tensor own = contiguous_of(value, what);
  void* const data = own.write(what);
  const Writing writing(*static_cast<EagerImpl*>(own.impl())->storage());
  f(own, data);
  const Tensor t = Tensor(value).detach();
  if (!t.is_contiguous()) write_in_place(t, own);
}

uint64_t bytes_of(const Tensor& t) { return static_cast<uint64_t>(t.size()) * dtype_size(t.dtype()); }

// A new tensor whose first dimension is that of `t`, times `times`, divided by `by`.
Tensor scaled(const Tensor& t, int64_t times, int64_t by, const char* what) {
  SLUICE_CHECK(t.rank() >= 1, "{}: the tensor has no dimensions; it needs one to lay the ranks' parts along", what);
  SLUICE_CHECK(t.shape()[0] % by == 0, "{}: dimension 0 is {}; it must be divisible by the {} ranks", what,
               t.shape()[0], by);
  Shape shape = t.shape();
  shape[0] = shape[0] / by * times;
  return Tensor::empty({t.dtype(), shape});
}

}  // namespace

void bind_distributed(nb::module_& m) {
  m.def("register_carrier", &register_python_carrier, nb::arg("name"), nb::arg("make"));
  nb::class_<PyWorld>(m, "World", "The ranks of a job, as one of them sees it; sluice.distributed makes it.")
      .def("__init__", &make_world, nb::arg("rank"), nb::arg("size"), nb::arg("host"), nb::arg("port"),
           nb::arg("token"), nb::arg("timeout"), nb::arg("heartbeat"), nb::arg("local_rank"),
           nb::arg("carrier") = kGloo)
      .def_prop_ro("rank", [](const PyWorld& self) { return self.world->rank(); })
      .def_prop_ro("size", [](const PyWorld& self) { return self.world->size(); })
      .def_prop_ro(
          "failed_rank", [](const PyWorld& self) { return self.world->failed_rank(); },
          "The rank whose failure ended the job, or -1.")
      .def("leave", &leave, Release(), nb::arg("failure") = "",
           "Says goodbye to the other ranks, or why this one failed.")
      .def_ro("local_ranks", &PyWorld::local_ranks, "Of every rank, its number among those of its host.")
      .def(
          "all_gather_text", [](PyWorld& self, const std::string& text) { return gather_texts(*self.all, text); },
          Release(), nb::arg("text"), "Every rank's text, in their order.")
      .def(
          "barrier", [](PyWorld& self) { self.all->barrier(); }, Release())
      .def(
          "miss", [](PyWorld& self, const std::string& text) { self.all->miss(text); }, Release(), nb::arg("text"),
          "Instead of the next collective: it fails in the other ranks with this text, and nothing else does.")
      .def(
          "all_reduce",
          [](PyWorld& self, const Value& tensor, const std::string& op) {
            in_place(tensor, "all_reduce", [&](const Tensor& t, void* data) {
              self.all->all_reduce(data, t.size(), t.dtype(), reduce_op(op));
            });
          },
          Release(), nb::arg("tensor"), nb::arg("op"), "Combines the ranks' tensors, in place.")
      .def(
          "all_gather",
          [](PyWorld& self, const Value& tensor) -> Value {
            const Tensor t = contiguous_of(tensor, "all_gather"), out = scaled(t, self.all->size(), 1, "all_gather");
            self.all->all_gather(t.read("all_gather"), out.write("all_gather"), bytes_of(t));
            return out;
          },
          Release(), nb::arg("tensor"), "The ranks' tensors, one after the other along dimension 0.")
      .def(
          "reduce_scatter",
          [](PyWorld& self, const Value& tensor, const std::string& op) -> Value {
            const Tensor t = contiguous_of(tensor, "reduce_scatter");
            const Tensor out = scaled(t, 1, self.all->size(), "reduce_scatter"), workspace = scaled(t, 1, 1, "");
            self.all->reduce_scatter(t.read("reduce_scatter"), out.write("reduce_scatter"),
                                     workspace.write("reduce_scatter"), out.size(), t.dtype(), reduce_op(op));
            return out;
          },
          Release(), nb::arg("tensor"), nb::arg("op"), "This rank's part along dimension 0 of the combined tensors.")
      .def(
          "all_to_all",
          [](PyWorld& self, const Value& tensor) -> Value {
            const Tensor t = contiguous_of(tensor, "all_to_all");
            const uint64_t part = bytes_of(scaled(t, 1, self.all->size(), "all_to_all"));
            const Tensor out = scaled(t, 1, 1, "");
            self.all->all_to_all(t.read("all_to_all"), out.write("all_to_all"), part);
            return out;
          },
          Release(), nb::arg("tensor"), "Part r along dimension 0 goes to rank r; the result has part r from rank r.")
      .def(
          "broadcast",
          [](PyWorld& self, const Value& tensor, int src) {
            in_place(tensor, "broadcast",
                     [&](const Tensor& t, void* data) { self.all->broadcast(data, bytes_of(t), src); });
          },
          Release(), nb::arg("tensor"), nb::arg("src"), "Gives every rank the tensor of rank src, in place.")
      .def(
          "send",
          [](PyWorld& self, const Value& tensor, int dst, uint32_t tag) {
            const Tensor t = contiguous_of(tensor, "send");
            self.all->send(t.read("send"), bytes_of(t), dst, tag);
          },
          Release(), nb::arg("tensor"), nb::arg("dst"), nb::arg("tag") = 0)
      .def(
          "receive",
          [](PyWorld& self, const Value& tensor, int src, uint32_t tag) {
            in_place(tensor, "receive",
                     [&](const Tensor& t, void* data) { self.all->receive(data, bytes_of(t), src, tag); });
          },
          Release(), nb::arg("tensor"), nb::arg("src"), nb::arg("tag") = 0);
}

}  // namespace sluice::python
