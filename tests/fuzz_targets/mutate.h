#pragma once
// Mutants of JSON documents: one change to the structure or to the bytes, chosen by a seed.
#include <random>
#include <string>

namespace sluice::test {

struct Mutant {
  std::string text;
  std::string change;      // "registers[0].quota: 2 -> -1", for messages
  std::string path;        // of the field that was changed; "" when bytes were
  bool structural = true;  // still a JSON document
};

class Mutator {
 public:
  // `document`: well-formed JSON.
  Mutator(std::string document, uint64_t seed);
  ~Mutator();
  Mutant next();

 private:
  struct Impl;
  Mutant bytes();
  int below(size_t n) { return static_cast<int>(random_() % n); }
  std::string document_;
  std::mt19937_64 random_;
  Impl* impl_;
};

}  // namespace sluice::test
