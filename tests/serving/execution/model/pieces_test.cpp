// The parts' answers are complete once.
#include "serving/execution/model/pieces.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace sluice::serving::test {
namespace {

InferResponse piece(size_t number) {
  InferResponse response;
  response.id = std::to_string(number);
  return response;
}

TEST(Pieces, AreCompleteWithTheLastAndInTheOrderOfTheParts) {
  Pieces pieces(3);
  EXPECT_FALSE(pieces.add(2, piece(2)));
  EXPECT_FALSE(pieces.add(0, piece(0)));
  EXPECT_TRUE(pieces.add(1, piece(1)));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(pieces.all()[i].id, std::to_string(i));
}

TEST(Pieces, OneThreadLearnsThatAllAreThere) {
  constexpr size_t kParts = 64;
  Pieces pieces(kParts);
  std::atomic<size_t> next{0}, complete{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (size_t part = next++; part < kParts; part = next++) {
        if (!pieces.add(part, piece(part))) continue;
        ++complete;
        for (size_t i = 0; i < kParts; ++i) EXPECT_EQ(pieces.all()[i].id, std::to_string(i));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(complete, 1u);
}

}  // namespace
}  // namespace sluice::serving::test
