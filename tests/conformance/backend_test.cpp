// How kinds of devices come in by name: examples/device, which lies beside this program.
#include "streams/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "streams/devices.h"
#include "support/error_of.h"

namespace sluice {
namespace {

using test::error_of;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

const DeviceKind kExample = DeviceKind::named("example");

TEST(Backend, IsOfTheKindThatItSays) {
  EXPECT_EQ(load_backend(EXAMPLE_DEVICE), kExample);
  EXPECT_EQ(load_backend(EXAMPLE_DEVICE), kExample);
  EXPECT_EQ(backend_of(kExample), open_backend(EXAMPLE_DEVICE));
  const plan::DeviceDesc desc = make_device(parse_device("example:3"))->describe();
  EXPECT_EQ(desc.device.str(), "example:3");
  EXPECT_FALSE(desc.host_memory);
  EXPECT_THAT(known_kinds(), Contains(kExample));
}

TEST(Backend, IsNotThatOfAnotherKind) {
  setenv("SLUICE_OTHER_LIBRARY", EXAMPLE_DEVICE, 1);
  EXPECT_EQ(error_of([] { make_device(parse_device("other:0")); }),
            "unsupported: device: other:0: '" EXAMPLE_DEVICE
            "' is the backend of example: it cannot be that of other; ask for its own "
            "devices, as in 'example:0'");
  unsetenv("SLUICE_OTHER_LIBRARY");
}

TEST(Backend, AKindHasOne) {
  load_backend(EXAMPLE_DEVICE);
  const std::string copy = testing::TempDir() + "another_example.so";
  std::filesystem::copy_file(EXAMPLE_DEVICE, copy, std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(error_of([&] { load_backend(copy); }),
              AllOf(StartsWith("value: backend '" + copy + "': its kind is example, which has a backend: '"),
                    HasSubstr(EXAMPLE_DEVICE)));
  std::filesystem::remove(copy);
}

TEST(Backend, AKindWithoutOneIsToldWhereItWasLookedFor) {
  setenv("SLUICE_THIRD_LIBRARY", "/nowhere/third.so", 1);
  const std::string told = error_of([] { make_device(parse_device("npu:1")); });
  EXPECT_THAT(
      told,
      StartsWith("unsupported: device: npu:1: the backend of npu could not be loaded: libsluice_npu.so: cannot open "
                 "shared object file: No such file or directory; the kinds here are cpu, sim"));
  const std::string here = std::filesystem::path(EXAMPLE_DEVICE).parent_path();
  EXPECT_THAT(told, AllOf(HasSubstr("third; another is libsluice_npu.so in " + here + " or"),
                          HasSubstr("named in SLUICE_NPU_LIBRARY, or loaded by its path")));
  EXPECT_THAT(error_of([] { make_device(parse_device("third")); }), HasSubstr("/nowhere/third.so: cannot open"));
  unsetenv("SLUICE_THIRD_LIBRARY");
}

TEST(Backend, WhatIsNoBackendIsRefused) {
  EXPECT_THAT(error_of([] { load_backend("/nowhere/at/all.so"); }),
              HasSubstr("the backend '/nowhere/at/all.so' could not be loaded: /nowhere/at/all.so: cannot open"));
  EXPECT_THAT(error_of([] { open_backend("libm.so.6"); }), StartsWith("unsupported: 'libm.so.6' is no backend: "));
}

TEST(Backend, TheKindsOfTheCoreHaveNone) {
  EXPECT_EQ(backend_of(DeviceKind::kCpu), nullptr);
  EXPECT_EQ(backend_of(DeviceKind::kSim), nullptr);
}

}  // namespace
}  // namespace sluice
