// Asks a served classifier for the classes of a tensor of floats, from a file of its raw bytes.
//
//   g++ -std=c++17 -O2 main.cpp -o client
//   ./client 127.0.0.1 8000 digits digit.f32 3 1 1 8 8      the three most probable classes of (1, 1, 8, 8) floats
#include <fstream>
#include <iostream>
#include <iterator>

#include "kserve.hpp"

int main(int argc, char** argv) try {
  if (argc < 7) {
    std::cerr << "usage: client HOST PORT MODEL FILE CLASSES DIM...\n";
    return 2;
  }
  std::ifstream file(argv[4], std::ios::binary);
  kserve::Tensor input{"INPUT_0", "FP32", {}, {std::istreambuf_iterator<char>(file), {}}};
  for (int i = 6; i < argc; ++i) input.shape.push_back(std::atoll(argv[i]));

  kserve::Client client(argv[1], std::atoi(argv[2]));
  const auto classes = static_cast<unsigned>(std::atoi(argv[5]));
  for (const kserve::Tensor& output : client.infer(argv[3], {input}, {{"OUTPUT_0", classes}})) {
    if (classes > 0)
      for (const std::string& text : output.strings()) std::cout << text << "\n";
    else
      for (const float value : output.values<float>()) std::cout << value << "\n";
  }
} catch (const kserve::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
