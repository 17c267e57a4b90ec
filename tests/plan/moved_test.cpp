#include "plan/moved.h"

#include <gtest/gtest.h>

#include "plan/json/json.h"

namespace sluice::plan {
namespace {

const DeviceId kFirst = parse_device("cuda:1"), kSecond = parse_device("cuda:10");

Plan plan_on(const DeviceId& device) {
  const std::string name = device.str();
  Plan plan;
  plan.name = "moved";
  plan.options = {{"device", name}};
  plan.target = "cpu:0[cores=2 host] " + name + "[cores=1 own async] ";
  plan.spaces = {{SpaceKind::kHost, {}}, {SpaceKind::kPinned, device}, {SpaceKind::kDevice, device}};
  plan.streams = {{"cpu:0/compute0", {}}, {name + "/compute0", device}};
  plan.arenas = {{"registers/pinned:" + name, 1}, {name + "/compute0", 2, 1}};
  plan.registers.emplace_back().name = "done: " + name + "/compute0";
  return plan;
}

TEST(MovedPlan, IsThePlanThatIsMadeThere) {
  Plan plan = plan_on(kFirst);
  EXPECT_EQ(device_of(plan), kFirst);
  move_plan(plan, kFirst, kSecond);
  EXPECT_EQ(to_json(plan), to_json(plan_on(kSecond)));
  move_plan(plan, kFirst, parse_device("cuda:2"));  // whose name begins that of the plan's device
  EXPECT_EQ(to_json(plan), to_json(plan_on(kSecond)));
  move_plan(plan, kSecond, kFirst);
  EXPECT_EQ(to_json(plan), to_json(plan_on(kFirst)));
}

std::string refusal_of(const Plan& plan) {
  try {
    device_of(plan);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MovedPlan, IsOfOneDevice) {
  EXPECT_EQ(device_of(Plan()), DeviceId{});
  Plan plan = plan_on(kFirst);
  plan.streams.push_back({"cuda:10/compute0", kSecond});
  EXPECT_EQ(refusal_of(plan), "plan 'moved': it is for cuda:1 and cuda:10; a plan of one device can move");
  plan = plan_on(kFirst);
  plan.options.emplace_back("devices.cuda:1", true);
  EXPECT_EQ(refusal_of(plan),
            "plan 'moved': it was made for an order of devices, cuda:1; a plan of one device can move");
}

}  // namespace
}  // namespace sluice::plan
