// Conditions under which sources start, and joins of streams by time: include/sluice/conditions.h and join.h.
#include <optional>

#include "bindings.h"
#include "include/sluice/conditions.h"
#include "include/sluice/join.h"

namespace sluice::python {

namespace {

using api::Conditions;
using Nanoseconds = Conditions::Nanoseconds;
using PyJoin = api::Join<nb::object>;

// Errors of the public API as those of the bindings.
template <class Call>
decltype(auto) told(Call&& call) {
  try {
    return call();
  } catch (const api::Error& error) {
    throw Error(static_cast<ErrorKind>(static_cast<int>(error.kind())), error.what());
  }
}

}  // namespace

void bind_flow(nb::module_& m) {
  nb::class_<Conditions>(m, "Conditions")
      .def(nb::init<>())
      .def(
          "periodic", [](Conditions& c, int64_t ns) { told([&] { c.periodic(Nanoseconds(ns)); }); }, nb::arg("ns"))
      .def(
          "count", [](Conditions& c, int64_t starts) { told([&] { c.count(starts); }); }, nb::arg("starts"))
      .def(
          "switched", [](Conditions& c, bool on) { c.switched(on); }, nb::arg("on"))
      .def("asynchronous", [](Conditions& c) { c.asynchronous(); })
      .def(
          "set", [](Conditions& c, bool on) { told([&] { c.set(on); }); }, nb::arg("on"))
      .def("complete", [](Conditions& c) { told([&] { c.complete(); }); })
      .def("stop", &Conditions::stop)
      .def(
          "at",
          [](const Conditions& c, int64_t now_ns) {
            const Conditions::Next next = c.at(Nanoseconds(now_ns));
            static constexpr const char* kKinds[] = {"now", "at", "on call", "never"};
            return nb::make_tuple(kKinds[static_cast<int>(next.kind)], next.at.count());
          },
          nb::arg("now_ns"))
      .def(
          "take", [](Conditions& c, int64_t now_ns) { return c.take(Nanoseconds(now_ns)); }, nb::arg("now_ns"))
      .def_prop_ro("starts", &Conditions::starts);
  nb::class_<PyJoin>(m, "Join")
      .def(
          "__init__",
          [](PyJoin* self, size_t streams, bool immediate, size_t newest) {
            told([&] {
              new (self) PyJoin(streams, {immediate ? PyJoin::Policy::kImmediate : PyJoin::Policy::kSynced, newest});
            });
          },
          nb::arg("streams"), nb::arg("immediate"), nb::arg("newest"))
      .def(
          "add",
          [](PyJoin& join, size_t stream, int64_t timestamp, nb::object packet) {
            told([&] { join.add(stream, timestamp, std::move(packet)); });
          },
          nb::arg("stream"), nb::arg("timestamp"), nb::arg("packet").none())
      .def(
          "bound", [](PyJoin& join, size_t stream, int64_t timestamp) { told([&] { join.bound(stream, timestamp); }); },
          nb::arg("stream"), nb::arg("timestamp"))
      .def(
          "end", [](PyJoin& join, size_t stream) { told([&] { join.end(stream); }); }, nb::arg("stream"))
      .def("next",
           [](PyJoin& join) -> nb::object {
             std::optional<PyJoin::Set> set = join.next();
             if (!set) return nb::none();
             nb::list packets;
             for (const std::optional<nb::object>& packet : set->packets) packets.append(packet ? *packet : nb::none());
             return nb::make_tuple(set->timestamp, nb::tuple(packets));
           })
      .def_prop_ro("ended", &PyJoin::ended)
      .def(
          "waiting", [](const PyJoin& join, size_t stream) { return told([&] { return join.waiting(stream); }); },
          nb::arg("stream"))
      .def(
          "dropped", [](const PyJoin& join, size_t stream) { return told([&] { return join.dropped(stream); }); },
          nb::arg("stream"))
      .def(
          "bound_of", [](const PyJoin& join, size_t stream) { return told([&] { return join.bound_of(stream); }); },
          nb::arg("stream"));
}

}  // namespace sluice::python
