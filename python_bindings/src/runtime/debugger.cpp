// The debugger of a saved graph, which runs in the thread that asks it (runtime/debug).
#include "runtime/debug/debugger.h"

#include <cstring>

#include "bindings.h"
#include "graph_object.h"
#include "runtime/bundle/bundle.h"
#include "runtime/family/family_bundle.h"
#include "runtime/session/engine.h"

namespace sluice::python {
namespace {

struct PyDebugger {
  Engine engine;
  Session session;
  Debugger debugger;
  std::vector<Value> inputs;  // which steps borrow

  PyDebugger(const std::string& path, int cores, std::optional<uint64_t> seed, SessionOptions options)
      : engine(EngineOptions{.cores = cores, .manual_stepping = true}),
        session(load(engine, path, std::move(options))),
        debugger(engine, session, seed) {}

  static Session load(Engine& engine, const std::string& path, SessionOptions options) {
    const BundleSource source(path);
    SLUICE_CHECK_KIND(kUnsupported, !is_family_bundle(source),
                      "{}: it has a plan for each of several sizes; debug the bundle of a graph with one size", path);
    return load_session(engine, source, std::move(options));
  }
};

nb::dict dict_of(const Firing& firing, const plan::Plan& plan) {
  nb::dict d;
  d["actor"] = plan.actors[firing.actor].name;
  d["step"] = firing.step;
  d["micro_batch"] = firing.nth;
  d["of"] = firing.of;
  nb::list wrote;
  for (const Firing::Token& token : firing.wrote)
    wrote.append(nb::make_tuple(plan.registers[token.reg].name, token.slot));
  d["wrote"] = nb::tuple(wrote);
  return d;
}

nb::dict dict_of(const Stop& stop, const plan::Plan& plan) {
  static constexpr const char* kReasons[] = {"stepped", "breakpoint", "nan", "end"};
  nb::dict d;
  d["reason"] = kReasons[static_cast<int>(stop.reason)];
  d["firings"] = stop.firings;
  if (stop.firing) d["firing"] = dict_of(*stop.firing, plan);
  if (stop.at) d["breakpoint"] = stop.at->number;
  if (stop.where) {
    d["register"] = plan.registers[stop.where->reg].name;
    d["slot"] = stop.where->slot;
    d["element"] = stop.where->found.element;
    d["value"] = stop.where->found.value;
  }
  nb::list finished;
  for (const FinishedStep& step : stop.finished)
    finished.append(
        nb::make_tuple(step.step, step.status.ok() ? nb::none() : nb::object(nb::str(step.status.message().c_str()))));
  d["finished"] = nb::tuple(finished);
  return d;
}

nb::list names_of(const plan::Plan& plan, const auto& readers, bool taken) {
  nb::list names;
  for (const auto& reader : readers)
    if (reader.taken == taken) names.append(plan.actors[reader.actor].name);
  return names;
}

nb::list slots_of(PyDebugger& self, const std::string& reg) {
  const plan::Plan& plan = self.debugger.plan();
  nb::list list;
  for (const plan::SlotState& slot : self.debugger.slots(self.debugger.register_named(reg))) {
    nb::dict d;
    d["state"] = !slot.used ? "free" : slot.written ? "written" : "being written";
    d["value"] = slot.used ? nb::object(nb::int_(slot.token)) : nb::none();
    d["to_be_read_by"] = nb::tuple(names_of(plan, slot.readers, false));
    d["held_by"] = nb::tuple(names_of(plan, slot.readers, true));
    list.append(d);
  }
  return list;
}

nb::list actors_of(PyDebugger& self) {
  const plan::Plan& plan = self.debugger.plan();
  nb::list list;
  for (const ActorState& state : self.debugger.actors()) {
    nb::dict d = dict_of(state.next, plan);
    d["firings"] = state.firings;
    d["ready"] = state.ready;
    nb::list waits;
    for (const plan::FiringRule::Wait& wait : state.waits) waits.append(wait.str(plan));
    d["waits"] = nb::tuple(waits);
    d["start_credits"] = state.starts;
    d.attr("pop")("wrote");
    list.append(d);
  }
  return list;
}

Value look(PyDebugger& self, const std::string& name, int slot, int part) {
  const int reg = self.debugger.register_named(name);
  const SlotPart& p = self.debugger.part_of(reg, part);
  const std::vector<std::byte> data = self.debugger.look(reg, slot < 0 ? self.debugger.newest_slot(reg) : slot, part);
  auto storage = std::make_shared<Storage>(self.engine.caching_allocator(), data.size());
  if (!data.empty()) std::memcpy(storage->data(), data.data(), data.size());
  return Value(std::make_shared<EagerImpl>(storage, TensorSpec::contiguous({p.spec.dtype, p.spec.shape}), DeviceId{}));
}

void change(PyDebugger& self, const std::string& name, const Value& value, int slot, int part) {
  const int reg = self.debugger.register_named(name);
  const Tensor tensor = Tensor(value).contiguous();
  const void* const data = tensor.read("debug");
  self.debugger.change(reg, slot < 0 ? self.debugger.newest_slot(reg) : slot, part,
                       {tensor.spec().dtype, tensor.spec().shape}, static_cast<const std::byte*>(data));
}

std::vector<Value> results_of(PyDebugger& self) {
  std::vector<Value> results;
  for (const OutputTensor& output : self.debugger.results())
    results.emplace_back(std::make_shared<EagerImpl>(output.storage, TensorSpec::contiguous(output.type), DeviceId{}));
  return results;
}

void submit(PyDebugger& self, const std::vector<Value>& inputs, uint64_t steps) {
  std::vector<InputTensor> data;
  for (const Value& input : inputs) data.push_back({Tensor(input).read("debug"), Tensor(input).spec()});
  self.debugger.submit(std::move(data), steps);
  self.inputs.insert(self.inputs.end(), inputs.begin(), inputs.end());
}

nb::list registers_of(const PyDebugger& self) {
  nb::list list;
  const std::vector<plan::Register>& registers = self.debugger.plan().registers;
  for (size_t r = 0; r < registers.size(); ++r) {
    nb::list parts;
    for (const SlotPart& part : self.debugger.parts(static_cast<int>(r)))
      parts.append(nb::make_tuple(part.name, TensorType{part.spec.dtype, part.spec.shape}.str()));
    list.append(nb::make_tuple(registers[r].name, self.debugger.plan().actors[registers[r].producer].name,
                               registers[r].quota, nb::tuple(parts)));
  }
  return list;
}

template <Stop (Debugger::*go)()>
nb::dict stopped(PyDebugger& self) {
  std::optional<Stop> stop;
  {
    GilRelease release;
    stop = (self.debugger.*go)();
  }
  return dict_of(*stop, self.debugger.plan());
}

}  // namespace

void bind_debugger(nb::module_& m) {
  nb::class_<PyDebugger>(m, "Debugger")
      .def(
          "__init__",
          [](PyDebugger* self, const std::string& path, const nb::dict& functions, int cores,
             std::optional<uint64_t> seed) {
            SessionOptions options;
            for (auto [name, function] : functions) {
              const std::string key = nb::cast<std::string>(name);
              options.functions[key] = host_function_of(key, nb::borrow(function));
            }
            GilRelease release;
            new (self) PyDebugger(path, cores, seed, std::move(options));
          },
          nb::arg("path"), nb::arg("functions"), nb::arg("cores"), nb::arg("seed").none())
      .def("submit", &submit, Release(), nb::arg("inputs"), nb::arg("steps"))
      .def("inputs",
           [](const PyDebugger& self) {
             nb::list names;
             for (const PortInfo& input : self.session.inputs()) names.append(input.name);
             return names;
           })
      .def(
          "add",
          [](PyDebugger& self, const std::optional<std::string>& actor, std::optional<int64_t> step,
             std::optional<int64_t> micro_batch, bool nan, const std::optional<std::string>& reg) {
            Breakpoint b{.step = step.value_or(-1), .nth = micro_batch.value_or(-1), .not_finite = nan};
            if (actor) b.actor = self.debugger.actor_named(*actor);
            if (reg) b.reg = self.debugger.register_named(*reg);
            return self.debugger.add(b).number;
          },
          nb::arg("actor").none(), nb::arg("step").none(), nb::arg("micro_batch").none(), nb::arg("nan"),
          nb::arg("register").none())
      .def(
          "remove", [](PyDebugger& self, int number) { self.debugger.remove(number); }, nb::arg("number"))
      .def("step", &stopped<&Debugger::step>)
      .def("run", &stopped<&Debugger::run>)
      .def("actors", &actors_of)
      .def("registers", &registers_of)
      .def("slots", &slots_of, nb::arg("register"))
      .def("look", &look, Release(), nb::arg("register"), nb::arg("slot"), nb::arg("part"))
      .def("change", &change, Release(), nb::arg("register"), nb::arg("value"), nb::arg("slot"), nb::arg("part"))
      .def("results", &results_of)
      .def("steps_left", [](const PyDebugger& self) { return self.debugger.steps_left(); });
}

}  // namespace sluice::python
