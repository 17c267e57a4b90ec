// Generators, and creation from them.
#include "tensor/random.h"

#include "bindings.h"
#include "call_place.h"
#include "graph/ops/attention.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/pooling.h"
#include "graph/ops/random.h"
#include "runtime/session/engine.h"
#include "tensor/eager.h"
#include "tensor/trace.h"

namespace sluice::python {
namespace {

// A graph places what it draws itself.
DeviceId place_of(const std::optional<DeviceId>& device) {
  return device && current_trace() == nullptr ? *device : DeviceId{};
}

void bind_generator_state(nb::class_<Generator>& generator) {
  generator
      .def(
          "__init__",
          [](Generator* self, const std::optional<DeviceId>& device) {
            new (self) Generator();
            if (!device) return;
            default_eager().engine().device(*device);
            self->device = *device;
          },
          nb::arg("device") = nb::none())
      .def_prop_ro("device",
                   [](const Generator& g) {
                     const bool cpu = g.device.kind == DeviceKind::kCpu;
                     return nb::module_::import_("sluice").attr("device")(cpu ? "cpu" : g.device.str());
                   })
      .def("manual_seed",
           [](nb::handle_t<Generator> self, uint64_t seed) {
             nb::inst_ptr<Generator>(self)->manual_seed(seed);
             return nb::borrow(self);
           })
      .def("initial_seed", &Generator::initial_seed)
      .def("get_state", [](Generator& g) -> Value { return g.get_state(); })
      .def("set_state",
           [](nb::handle_t<Generator> self, const Value& state) {
             nb::inst_ptr<Generator>(self)->set_state(state);
             return nb::borrow(self);
           })
      .def_prop_ro("state", [](Generator& g) -> Value { return g.state(); });
}

// These draws give torch's numbers: each call takes the next ones.
void bind_sequential_draws(nb::class_<Generator>& generator) {
  generator.def("rand",
                [](Generator& g, const Shape& s, DType d) -> Value {
                  return g.rand({d, s});
                })
      .def("randn",
           [](Generator& g, const Shape& s, DType d) -> Value {
             return g.randn({d, s});
           })
      .def("randint",
           [](Generator& g, int64_t low, int64_t high, const Shape& s, DType d) -> Value {
             return g.randint({d, s}, low, high);
           })
      .def("randperm", [](Generator& g, int64_t n) -> Value { return g.randperm(n); })
      .def("uniform_", [](Generator& g, const Value& t, double low, double high) { g.uniform_(t, low, high); })
      .def("normal_", [](Generator& g, const Value& t, double mean, double std,
                         bool one_by_one) { g.normal_(t, mean, std, one_by_one); })
      .def("bernoulli", [](Generator& g, const Shape& s, double p) -> Value { return g.bernoulli(s, p); })
      .def("bits", [](Generator& g, const Shape& s, int count) -> Value { return g.bits(s, count); });
}

// These ops count instead, so that they can run inside graphs: each call is a fresh draw.
void bind_random_ops(nb::class_<Generator>& generator) {
  generator
      .def(
          "dropout",
          [](Generator& g, const Value& x, double p) {
            const CallPlace place(CallPlace::of(&x));
            const Generator::Draw draw = g.next();
            return ops::dropout(draw.state, x, p, draw.salt);
          },
          nb::arg("input"), nb::arg("p"))
      .def(
          "attention",
          [](Generator& g, const Value& q, const Value& k, const Value& v, const OptionalValue& mask, double dropout_p,
             bool is_causal, std::optional<double> scale, bool enable_gqa) {
            const CallPlace place(CallPlace::of(&q));
            ops::AttentionOptions options{mask, is_causal, scale, enable_gqa, dropout_p};
            if (dropout_p > 0) {
              const Generator::Draw draw = g.next();
              options.dropout_state = draw.state;
              options.dropout_salt = draw.salt;
            }
            GilRelease release;
            return ops::scaled_dot_product_attention(q, k, v, options);
          },
          nb::arg("query"), nb::arg("key"), nb::arg("value"), nb::arg("attn_mask").none(), nb::arg("dropout_p"),
          nb::arg("is_causal"), nb::arg("scale").none(), nb::arg("enable_gqa"))
      .def(
          "fractional_max_pool",
          [](Generator& g, const Value& x, const Ints& kernel, const Ints& size, const OptionalValue& samples) {
            const CallPlace place(CallPlace::of(&x));
            Value at = samples;
            if (!at.defined()) {
              const Generator::Draw draw = g.next();
              const Shape shape = {x.shape()[0], x.shape()[1], static_cast<int64_t>(kernel.size())};
              at = ops::uniform(draw.state, shape, 0, 1, x.dtype(), draw.salt);
            }
            const auto [values, indices] = ops::fractional_max_pool(x, kernel, size, at);
            return std::make_pair(values, indices);
          },
          nb::arg("input"), nb::arg("kernel_size"), nb::arg("output_size"), nb::arg("samples").none());
}

// These create tensors by such a draw.
void bind_counted_draws(nb::class_<Generator>& generator) {
  generator
      .def(
          "draw_uniform",
          [](Generator& g, const Shape& s, double low, double high, DType d, const std::optional<DeviceId>& device) {
            const Generator::Draw draw = g.next();
            const CreationScope there(place_of(device));
            return ops::uniform(draw.state, s, low, high, d, draw.salt);
          },
          nb::arg("size"), nb::arg("low"), nb::arg("high"), nb::arg("dtype"), nb::arg("device") = nb::none())
      .def("draw_normal",
           [](Generator& g, const Shape& s, double mean, double std, DType d) {
             const Generator::Draw draw = g.next();
             return ops::normal(draw.state, s, mean, std, d, draw.salt);
           })
      .def(
          "draw_bernoulli",
          [](Generator& g, const Shape& s, double p, DType d, const std::optional<DeviceId>& device) {
            const Generator::Draw draw = g.next();
            const CreationScope there(place_of(device));
            return ops::bernoulli(draw.state, s, p, d, draw.salt);
          },
          nb::arg("size"), nb::arg("p"), nb::arg("dtype"), nb::arg("device") = nb::none())
      .def("draw_randint", [](Generator& g, const Shape& s, int64_t low, int64_t high, DType d) {
        const Generator::Draw draw = g.next();
        return ops::randint(draw.state, s, low, high, d, draw.salt);
      });
}

}  // namespace

void bind_random(nb::module_& m) {
  nb::class_<Generator> generator(m, "Generator", nb::is_weak_referenceable(),
                                  "Random numbers: torch's sequential CPU generator, and the state of random ops.");
  bind_generator_state(generator);
  bind_sequential_draws(generator);
  bind_random_ops(generator);
  bind_counted_draws(generator);
}

}  // namespace sluice::python
