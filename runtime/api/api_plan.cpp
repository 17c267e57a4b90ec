// Plans of the public C++ API, and the memory that their sessions may share.
#include <filesystem>

#include "include/sluice/sluice.hpp"
#include "plan/json/json.h"
#include "plan/pack/ledger.h"
#include "plan/verify.h"
#include "runtime/api/api_support.h"
#include "runtime/family/family_bundle.h"
#include "runtime/family/family_parts.h"
#include "runtime/session/shared_arenas.h"

namespace sluice::api {

std::string Port::str() const {
  return guarded([&] {
    if (dims.empty()) return fmt::format("{}: {}{}", name, dtype_name(dtype), Shape(shape).str());
    std::string axes;
    for (size_t a = 0; a < shape.size(); ++a) {
      const bool varies = a < dims.size() && !dims[a].empty();
      axes += fmt::format("{}{}{}", a > 0 ? ", " : "", varies ? dims[a] + "<=" : "", shape[a]);
    }
    return fmt::format("{}: {}({})", name, dtype_name(dtype), axes);
  });
}

std::vector<Port> ports_of(const plan::Family& family, const std::vector<PortInfo>& infos,
                           const std::vector<plan::FamilyPort>& axes) {
  std::vector<Port> ports;
  for (size_t i = 0; i < infos.size(); ++i) {
    const PortInfo& info = infos[i];
    Port& port = ports.emplace_back(Port{info.name, static_cast<DType>(info.type.dtype), info.type.shape.vec()});
    port.copied = info.copied;
    port.device = device_of(info.space);
    for (size_t a = 0; i < axes.size() && a < axes[i].axes.size(); ++a) {
      const int dim = axes[i].axes[a].dim;
      if (dim < 0) continue;
      port.dims.resize(port.shape.size());
      port.dims[a] = family.dims[dim].name;
    }
  }
  return ports;
}

void name_varying(std::vector<Port>& outputs, const std::vector<plan::ResultExtent>& extents) {
  for (const plan::ResultExtent& extent : extents) {
    Port& port = outputs[static_cast<size_t>(extent.output)];
    port.dims.resize(port.shape.size());
    port.dims[static_cast<size_t>(extent.axis)] = extent.dim;
  }
}

// A plan alone is a family of one without dims, whose ports are the plan's.
struct Plan::Impl {
  FamilyPlans plans;

  static Plan load(const BundleSource& source) {
    if (is_family_bundle(source)) return of(load_family_plans(source));
    return of({{}, {plan::from_json(source.text(kPlanFile), source.path(kPlanFile))}});
  }
  static Plan of(FamilyPlans plans) {
    if (plans.family.members.empty()) plans.family = {plans.members.front().name, {}, {}, {}, {{}}};
    Plan plan;
    plan.impl_ = std::make_shared<const Impl>(Impl{std::move(plans)});
    return plan;
  }
};

namespace {

template <class Impl>
const FamilyPlans& read(const std::shared_ptr<const Impl>& impl) {
  return held(impl, "plan", "Plan::load()").plans;
}

std::vector<Port> ports_in(const FamilyPlans& plans, const std::vector<plan::NamedType>& of_last,
                           const std::vector<plan::FamilyPort>& axes) {
  std::vector<PortInfo> infos;
  for (const plan::NamedType& port : of_last) infos.push_back({port.name, port.type});
  return ports_of(plans.family, at_most(plans.family, std::move(infos), axes), axes);
}

}  // namespace

Plan Plan::load(const std::string& path) {
  return guarded([&] {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored) || BundleSource::is_archive(path)) return Impl::load(path);
    return Impl::of({{}, {plan::load_plan(path)}});  // a file with a plan alone, or nothing
  });
}

Plan Plan::load(const void* archive, size_t bytes) {
  return guarded([&] {
    const std::shared_ptr<const void> borrowed(std::shared_ptr<void>(), archive);
    return Impl::load(BundleSource(borrowed, bytes, "bundle in memory"));
  });
}
const std::string& Plan::name() const {
  return guarded([&]() -> const std::string& { return read(impl_).family.name; });
}
std::vector<Port> Plan::inputs() const {
  return guarded([&] {
    const FamilyPlans& plans = read(impl_);
    return ports_in(plans, named_inputs(plans.members.back()), plans.family.inputs);
  });
}
std::vector<Port> Plan::outputs() const {
  return guarded([&] {
    const FamilyPlans& plans = read(impl_);
    const std::vector<plan::NamedType> all = plan::named_outputs(plans.members.back());
    std::vector<Port> ports = ports_in(plans, plan::visible(all), plans.family.outputs);
    name_varying(ports, plan::visible_extents(all));
    return ports;
  });
}
std::vector<std::string> Plan::dims() const {
  return guarded([&] {
    std::vector<std::string> names;
    for (const plan::Dim& dim : read(impl_).family.dims) names.push_back(dim.name);
    return names;
  });
}
std::vector<std::vector<int64_t>> Plan::members() const {
  return guarded([&] { return read(impl_).family.members; });
}
std::vector<std::string> Plan::actors() const {
  return guarded([&] {
    std::vector<std::string> names;
    const std::vector<plan::Plan>& members = read(impl_).members;
    for (size_t m = 0; m < members.size(); ++m)
      for (const plan::Actor& actor : members[m].actors)
        names.push_back(members.size() > 1 ? fmt::format("{}/{}", m, actor.name) : actor.name);
    return names;
  });
}
int Plan::kernels() const {
  return guarded([&] {
    size_t kernels = 0;
    for (const plan::Plan& plan : read(impl_).members) kernels += plan.kernels.size();
    return static_cast<int>(kernels);
  });
}
uint64_t Plan::memory_bytes(int sessions) const {
  return guarded([&] {
    SLUICE_CHECK(sessions >= 1, "memory_bytes: sessions: {}; must be at least 1", sessions);
    std::vector<const plan::Plan*> members;
    for (const plan::Plan& plan : read(impl_).members) members.push_back(&plan);
    const plan::FamilyLedger ledger = plan::family_ledger(members, true);
    return ledger.total + checked_mul(static_cast<uint64_t>(sessions - 1), ledger.total - ledger.shared);
  });
}
std::string Plan::verify() const {
  return guarded([&] {
    const FamilyPlans& plans = read(impl_);
    std::string problems;
    const auto add = [&](size_t member, const std::string& problem) {
      if (problem.empty()) return;
      problems += (problems.empty() ? "" : "\n");
      problems += plans.members.size() > 1 ? fmt::format("{}/{}: {}", kMembersFolder, member, problem) : problem;
    };
    for (size_t m = 0; m < plans.members.size(); ++m) {
      const plan::Plan& plan = plans.members[m];
      add(m, plan::verify(plan).str());
      if (plans.family.dims.empty()) continue;
      try {
        plan::check_member(plans.family, m, named_inputs(plan), plan::visible(plan::named_outputs(plan)));
        plan::check_updates(plans.family, plan);
      } catch (const sluice::Error& error) {
        add(m, error.what());
      }
    }
    return problems;
  });
}

SharedArenas::SharedArenas(Engine& engine)
    : impl_(guarded([&] { return std::make_shared<sluice::SharedArenas>(inside(engine)); })) {}

void SharedArenas::reserve(const Plan& plan) {
  guarded([&] {
    sluice::SharedArenas& arenas = held(impl_, "arenas", "SharedArenas(engine)");
    for (const plan::Plan& member : read(plan.impl_).members) {
      plan::check(member);
      arenas.reserve(member);
    }
  });
}
uint64_t SharedArenas::bytes() const {
  return guarded([&] { return impl_ == nullptr ? uint64_t{0} : impl_->bytes({}); });
}

}  // namespace sluice::api
