// The time of a device, shared by weights: what sluice.utils.sharing stands on.
#include "memory/time_lease.h"

#include "bindings.h"

namespace sluice::python {

void bind_time_leases(nb::module_& m) {
  nb::class_<TimeLeases>(m, "TimeLeases", "Turns of several who share a device, by weights.")
      .def(nb::init<>())
      .def("add", &TimeLeases::add, nb::arg("weight"), nb::arg("room"))
      .def("ask", &TimeLeases::ask, nb::arg("member"), Release())
      .def("take", &TimeLeases::take, Release())
      .def("give_back", &TimeLeases::give_back, nb::arg("member"), nb::arg("seconds"), nb::arg("counts") = true)
      .def("close", &TimeLeases::close, Release())
      .def("shares", [](const TimeLeases& leases) {
        nb::list all;
        for (const TimeLeases::Share& share : leases.shares()) {
          nb::dict row;
          row["weight"] = share.weight;
          row["turns"] = share.turns;
          row["seconds"] = share.seconds;
          row["waiting"] = share.waiting;
          all.append(row);
        }
        return all;
      });
}

}  // namespace sluice::python
