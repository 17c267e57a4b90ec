// Inputs and outputs on the command line of sluice-run.
#include "tools/sluice_run/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tools/sluice_run/npy.h"

namespace sluice::run {
namespace {

using api::DType;
using testing::HasSubstr;

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

const std::vector<api::Port> kPorts = {
    {"x", DType::kFloat32, {2, 2}}, {"mask", DType::kBool, {2}}, {"n", DType::kInt8, {}}};

class Files : public testing::Test {
 protected:
  Files() { std::filesystem::create_directories(folder_); }
  ~Files() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      (std::string("sluice_run_") + testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST(Inputs, AreTakenInOrderOrByName) {
  InputArguments given;
  given.inputs = {"n=-3", "1,2 3, 4", "1"};
  EXPECT_THAT(error_of([&] { make_inputs(kPorts, given); }), HasSubstr("one too many"));  // after n there is none
  given.inputs = {"1,2 3, 4", "1", "n=-3"};
  const std::vector<api::Tensor> tensors = make_inputs(kPorts, given);
  EXPECT_EQ(show("x", tensors[0]), "x: float32(2, 2)\n[[1, 2],\n [3, 4]]\n");
  EXPECT_EQ(show("mask", tensors[1]), "mask: bool(2,)\n[true, true]\n");
  EXPECT_EQ(show("n", tensors[2]), "n: int8()\n-3\n");
}

TEST(Inputs, WhatIsWrongIsNamed) {
  const auto told = [](std::vector<std::string> inputs, std::string fill = "") {
    InputArguments given;
    given.inputs = std::move(inputs);
    given.fill = std::move(fill);
    return error_of([&] { make_inputs(kPorts, given); });
  };
  EXPECT_THAT(told({"1"}), HasSubstr("input 'mask: bool(2,)': it is not given; add --input=mask=@FILE.npy"));
  EXPECT_THAT(told({"y=1"}), HasSubstr("--input 'y=1': there is no 'y'; the names are x, mask, n"));
  EXPECT_THAT(told({"x=1", "x=2"}), HasSubstr("'x' is given twice"));
  EXPECT_THAT(told({"1,2,3"}, "zeros"), HasSubstr("3 numbers; x: float32(2, 2) takes 4, or one for all of them"));
  EXPECT_THAT(told({"1,two"}, "zeros"), HasSubstr("it must be @FILE.npy, zeros, random, or numbers"));
  EXPECT_THAT(told({"n=200"}, "zeros"), HasSubstr("200 is no int8"));
  EXPECT_THAT(told({"n=1.5"}, "zeros"), HasSubstr("1.5 is no int8"));
  EXPECT_THAT(told({"x=@/no/such.npy"}, "zeros"), HasSubstr("/no/such.npy: cannot be read"));
}

TEST(Inputs, RandomOnesFollowTheSeed) {
  InputArguments given;
  given.fill = "random";
  const auto shown = [&] { return show("x", make_inputs(kPorts, given)[0]); };
  const std::string first = shown();
  EXPECT_EQ(first, shown());
  given.seed = 1;
  EXPECT_NE(first, shown());
}

TEST(Inputs, DimsHaveTheSizeThatIsAskedFor) {
  const std::vector<api::Port> ports = {{"x", DType::kFloat32, {8, 2}, {"batch", ""}}};
  InputArguments given;
  given.fill = "zeros";
  EXPECT_EQ(make_inputs(ports, given)[0].str(), "float32(8, 2)");
  given.dims = {"batch=3"};
  EXPECT_EQ(make_inputs(ports, given)[0].str(), "float32(3, 2)");
  given.dims = {"rows=3"};
  EXPECT_THAT(error_of([&] { make_inputs(ports, given); }), HasSubstr("no input has a dim of this name"));
  given.dims = {"batch"};
  EXPECT_THAT(error_of([&] { make_inputs(ports, given); }), HasSubstr("it must be NAME=SIZE"));
}

TEST(Show, LargeTensorsHaveTheirEdges) {
  const api::Tensor tensor(DType::kInt32, {4000});
  EXPECT_EQ(show("x", tensor), "x: int32(4000,)\n[0, 0, 0, ..., 0, 0, 0]\n");
}

TEST(Difference, IsToldWithItsPlace) {
  const api::Tensor a = api::Tensor::from<float>({1, 2, 3}, {3}), b = api::Tensor::from<float>({1, 2.5, 3}, {3});
  EXPECT_EQ(difference(a, a, 0), "");
  EXPECT_EQ(difference(a, b, 0.1), "1 of 3 elements differ; the first is element 1: got 2, expected 2.5");
  EXPECT_EQ(difference(a, b, 0.2), "");
  EXPECT_EQ(difference(a, api::Tensor(DType::kFloat32, {2}), 1), "got float32(3,); expected float32(2,)");
}

TEST_F(Files, EveryDtypeSurvives) {
  for (int d = 0; d < 12; ++d) {
    api::Tensor tensor(static_cast<DType>(d), {3, 2});
    for (size_t i = 0; i < tensor.bytes(); ++i) static_cast<unsigned char*>(tensor.raw())[i] = i % 2;
    write_npy(path("x.npy"), tensor);
    const api::Tensor again = read_npy(path("x.npy"));
    EXPECT_EQ(again.str(), tensor.str());
    EXPECT_EQ(std::memcmp(again.raw(), tensor.raw(), tensor.bytes()), 0) << d;
    EXPECT_EQ(std::filesystem::file_size(path("x.npy")) % 64, tensor.bytes() % 64);
  }
}

TEST_F(Files, WhatIsNoArrayIsRefused) {
  const auto told = [&](const std::string& bytes) {
    const std::string file = write("x.npy", bytes);
    return error_of([&] { read_npy(file); });
  };
  const auto array = [](const std::string& header, const std::string& data) {
    return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) + '\0' + header + data;
  };
  EXPECT_THAT(told(""), HasSubstr("it is too short; not a .npy file"));
  EXPECT_THAT(told("0123456789abc"), HasSubstr("it begins with other bytes"));
  EXPECT_THAT(told(std::string("\x93NUMPY\1\0\xff\xff", 10)), HasSubstr("its header is longer than the file"));
  EXPECT_THAT(told(array("{'descr': '<f4'}", "")), HasSubstr("does not tell one dtype and shape"));
  EXPECT_THAT(told(array("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "0000")),
              HasSubstr("elements are '>f4'"));
  EXPECT_THAT(told(array("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "0000")),
              HasSubstr("elements are '|O'"));
  EXPECT_THAT(told(array("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", "0123456789abcdef")),
              HasSubstr("column-major order; save numpy.ascontiguousarray(x)"));
  EXPECT_THAT(told(array("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "0000")),
              HasSubstr("4 bytes of data; its shape needs 8"));
  EXPECT_THAT(told(array("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }", "")),
              HasSubstr("too large"));
}

}  // namespace
}  // namespace sluice::run
