// A program outside the tree: runs a bundle, catches an error from the library by its type.
//
//   consumer BUNDLE IN OUT
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sluice/sluice.hpp>

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  sluice::api::Engine engine({.cores = 1});
  try {
    sluice::api::Session::load(engine, "/no/such/bundle");
    return 3;
  } catch (const sluice::api::Error& error) {
    if (error.kind() != sluice::api::ErrorKind::kIo) return 4;
  }
  auto session = sluice::api::Session::load(engine, argv[1]);
  std::ifstream file(argv[2], std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  size_t at = 0;
  std::vector<sluice::api::Tensor> inputs;
  for (const auto& port : session.inputs()) {
    inputs.emplace_back(port.dtype, port.shape);
    std::memcpy(inputs.back().raw(), bytes.data() + at, inputs.back().bytes());
    at += inputs.back().bytes();
  }
  std::ofstream out(argv[3], std::ios::binary);
  for (const auto& output : session.run(inputs)) out.write(static_cast<const char*>(output.raw()), output.bytes());
  std::cout << sluice::api::version() << " " << SLUICE_VERSION << "\n";
}
