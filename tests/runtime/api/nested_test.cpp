// Arguments and results of sessions in lists and dictionaries.
#include "include/sluice/nested.h"

#include "runtime/fixture.h"
#include "support/what_of.h"

namespace sluice::test {
namespace {

using api::Nested;
using api::Port;

const std::vector<Port> kPorts = {{"batch.images", api::DType::kFloat32, {2}},
                                  {"batch.sizes.0", api::DType::kFloat32, {1}},
                                  {"batch.sizes.1", api::DType::kFloat32, {1}},
                                  {"scale", api::DType::kFloat32, {}}};

api::Tensor number(float value) { return api::Tensor::from<float>({value}, {1}); }
float of(const Nested& nested) { return *nested.tensor().data<float>(); }

Nested arguments() {
  return Nested::dict(
      {{"scale", number(4)},
       {"batch", Nested::dict({{"sizes", Nested::list({number(2), number(3)})}, {"images", number(1)}})}});
}

TEST(NestedValues, AreTensorsInThePortsOrder) {
  const std::vector<api::Tensor> flat = api::flatten(kPorts, arguments());
  ASSERT_EQ(flat.size(), 4u);
  for (size_t i = 0; i < flat.size(); ++i) EXPECT_EQ(*flat[i].data<float>(), static_cast<float>(i + 1));
}

TEST(NestedValues, ComeBackAsTheyWere) {
  const Nested back = api::unflatten(kPorts, api::flatten(kPorts, arguments()));
  EXPECT_EQ(back.names(), (std::vector<std::string>{"batch", "scale"}));
  EXPECT_EQ(of(back.at("batch").at("images")), 1);
  EXPECT_EQ(back.at("batch").at("sizes").kind(), Nested::Kind::kList);
  EXPECT_EQ(of(back.at("batch").at("sizes").at(1)), 3);
  EXPECT_EQ(of(back.at("scale")), 4);
}

TEST(NestedValues, WhatIsWrongIsNamed) {
  Nested lacking = arguments();
  lacking.set("batch", Nested::dict({{"images", number(1)}}));
  EXPECT_THAT(what_of([&] { api::flatten(kPorts, lacking); }),
              HasSubstr("input 'batch.sizes.0: float32(1,)' is not given"));
  Nested more = arguments();
  more.set("other", number(5));
  EXPECT_THAT(what_of([&] { api::flatten(kPorts, more); }), HasSubstr("'other' is no input"));
  EXPECT_THAT(what_of([&] { static_cast<void>(more.at("nothing")); }), HasSubstr("no entry 'nothing'"));
  EXPECT_THAT(what_of([&] { static_cast<void>(more.at(0)); }), HasSubstr("it is not a list"));
  EXPECT_THAT(what_of([&] { static_cast<void>(more.tensor()); }), HasSubstr("it is not a tensor"));
  EXPECT_THAT(what_of([&] { static_cast<void>(Nested::list().at(0)); }), HasSubstr("element 0 of a list of 0"));
}

}  // namespace
}  // namespace sluice::test
