// The steps of a session: each leaves once, and none behind the end.
#include "serving/execution/model/flight.h"

#include <gtest/gtest.h>

#include "support.h"

namespace sluice::serving::test {
namespace {

std::vector<BatchPtr> in_air(Flight& flight, size_t steps) {
  std::vector<BatchPtr> all;
  for (size_t i = 0; i < steps; ++i) {
    all.push_back(batch_of({std::make_shared<Job>()}));
    flight.take_off(all.back());
  }
  return all;
}

TEST(Flight, StepsLandInTheOrderOfTheirSubmission) {
  Flight flight;
  const std::vector<BatchPtr> steps = in_air(flight, 2);
  EXPECT_EQ(flight.land(""), steps[0]);
  EXPECT_EQ(flight.land(""), steps[1]);
  EXPECT_EQ(flight.land(""), nullptr);
  EXPECT_TRUE(flight.end().empty());
}

TEST(Flight, StepsThatFailStayToBeLookedAtOldestFirst) {
  Flight flight;
  const std::vector<BatchPtr> steps = in_air(flight, 3);
  EXPECT_EQ(flight.next_failed(), nullptr);
  EXPECT_EQ(flight.land("broken"), steps[0]);
  EXPECT_EQ(flight.land("too"), steps[1]);
  EXPECT_EQ(steps[0]->error, "broken");
  EXPECT_EQ(flight.land(""), steps[2]);
  EXPECT_EQ(flight.next_failed(), steps[0]);
  EXPECT_EQ(flight.next_failed(), steps[1]);
  EXPECT_EQ(flight.next_failed(), nullptr);
}

TEST(Flight, AStepThatTurnsBackDoesNotLand) {
  Flight flight;
  const std::vector<BatchPtr> steps = in_air(flight, 2);
  flight.turn_back(steps[0]);
  EXPECT_EQ(flight.land(""), steps[1]);
  flight.turn_back(steps[1]);  // it has left
  EXPECT_EQ(flight.land(""), nullptr);
}

TEST(Flight, TheEndReturnsWhatNobodyHasAnswered) {
  Flight flight;
  const std::vector<BatchPtr> steps = in_air(flight, 4);
  flight.land("broken");
  flight.land("");
  EXPECT_EQ(flight.end(), (std::vector<BatchPtr>{steps[0], steps[2], steps[3]}));
  EXPECT_EQ(flight.next_failed(), nullptr);
  EXPECT_TRUE(flight.end().empty());
}

TEST(Flight, NothingLandsBehindTheEnd) {
  Flight flight;
  in_air(flight, 1);
  flight.end();
  in_air(flight, 1);
  EXPECT_EQ(flight.land(""), nullptr);
}

TEST(Flight, KnowsTheRequestsOfStepsInTheAir) {
  Flight flight;
  const JobPtr a = std::make_shared<Job>(), b = std::make_shared<Job>(), c = std::make_shared<Job>();
  flight.take_off(batch_of({a}));
  flight.take_off(batch_of({b, c}));
  flight.land("broken");
  std::vector<JobPtr> jobs;
  flight.add_jobs(jobs);
  EXPECT_EQ(jobs, (std::vector<JobPtr>{b, c})) << "one that failed is not in the air";
}

}  // namespace
}  // namespace sluice::serving::test
