#include <cmath>
#include <numeric>

#include "tools/sluice_perf/http_response.h"
#include "tools/sluice_perf/report.h"
#include "tools/sluice_perf/sweep.h"
#include "tools/sluice_perf/target.h"
#include "tools/sluice_perf/windows.h"

namespace sluice::perf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<double> values(const std::string& text) {
  std::vector<double> all;
  for (const SweepValue& value : parse_sweep(text)) all.push_back(value.value);
  return all;
}

TEST(Sweep, IsWrittenAsRangesAndLists) {
  EXPECT_THAT(values("4"), ElementsAre(4));
  EXPECT_THAT(values("1:4"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(values("100:1000:300"), ElementsAre(100, 400, 700, 1000));
  EXPECT_THAT(values("1,8,64"), ElementsAre(1, 8, 64));
  EXPECT_TRUE(parse_sweep("70%,200")[0].percent);
  EXPECT_FALSE(parse_sweep("70%,200")[1].percent);
}

TEST(Sweep, WhatIsWrongIsNamed) {
  for (const char* text : {"", "x", "4:", "0", "-1", "8:1", "1:2:3:4", "1:1e7", "nan"}) {
    try {
      parse_sweep(text);
      ADD_FAILURE() << text;
    } catch (const std::runtime_error& e) {
      EXPECT_THAT(e.what(), HasSubstr("levels")) << text;
    }
  }
}

TEST(Target, OfAUrl) {
  EXPECT_EQ(parse_target("127.0.0.1:8000").port, "8000");
  EXPECT_EQ(parse_target("http://host:80/a/b/").base, "/a/b");
  EXPECT_EQ(parse_target("[::1]:9").host, "::1");
  EXPECT_EQ(parse_target("[::1]:9").port, "9");
  EXPECT_EQ(parse_target("host").port, "8000");
  EXPECT_THROW(parse_target("https://host:1"), std::runtime_error);
  EXPECT_THROW(parse_target(":8000"), std::runtime_error);
}

const std::string kPlain = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX: y\r\n\r\nhello";
const std::string kChunked =
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    "3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nT: z\r\n\r\n";

TEST(HttpResponse, OfBytesThatComeOneByOne) {
  for (const std::string& text : {kPlain, kChunked}) {
    HttpResponse whole(true), pieces(true);
    EXPECT_EQ(whole.feed(text + "HTTP"), text.size());  // the next answer's bytes are left alone
    for (const char c : text) {
      EXPECT_FALSE(pieces.done());
      EXPECT_EQ(pieces.feed(std::string_view(&c, 1)), 1u);
    }
    EXPECT_TRUE(whole.done() && pieces.done());
    EXPECT_EQ(whole.status(), text == kPlain ? 200 : 503);
    EXPECT_EQ(pieces.keep_alive(), text == kPlain);
    EXPECT_EQ(whole.take_body(), "hello");
    EXPECT_EQ(pieces.take_body(), "hello");
  }
}

TEST(HttpResponse, ABodyIsTheSameHoweverItComesInPieces) {
  const auto hash_of = [](const std::string& body, size_t piece) {
    HttpResponse response(false);
    response.feed("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n");
    for (size_t at = 0; at < body.size(); at += piece) response.feed(std::string_view(body).substr(at, piece));
    EXPECT_TRUE(response.done());
    return response.hash();
  };
  const std::string body = "a body of more than eight bytes, and not of a multiple of them";
  for (const size_t piece : {1, 3, 8, 13, 40}) EXPECT_EQ(hash_of(body, piece), hash_of(body, body.size())) << piece;
  EXPECT_NE(hash_of(body, 8), hash_of(body + '\1', 8));
  EXPECT_NE(hash_of(std::string(9, 'x'), 9), hash_of(std::string(8, 'x') + 'y', 9));
}

TEST(HttpResponse, WithoutALengthItEndsWithTheConnection) {
  HttpResponse response(true);
  response.feed("HTTP/1.1 200 OK\r\n\r\nsome");
  EXPECT_FALSE(response.done());
  EXPECT_TRUE(response.finish());
  EXPECT_FALSE(response.keep_alive());
  HttpResponse cut(true);
  cut.feed(kPlain.substr(0, kPlain.size() - 1));
  EXPECT_FALSE(cut.finish());
}

TEST(HttpResponse, WhatIsNoHttpIsRefused) {
  EXPECT_THROW(HttpResponse(true).feed("SSH-2.0\r\n\r\n"), std::runtime_error);
  EXPECT_THROW(HttpResponse(true).feed(std::string(1 << 20, 'x')), std::runtime_error);
  EXPECT_THROW(HttpResponse(true).feed("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), std::runtime_error);
}

TEST(Summary, PercentilesAreValuesThatWereMeasured) {
  std::vector<int64_t> ns;
  for (int64_t i = 1000; i >= 1; --i) ns.push_back(i * 1000);
  const Summary summary = summarize(ns);
  EXPECT_EQ(summary.count, 1000u);
  EXPECT_EQ(summary.p50, 500);
  EXPECT_EQ(summary.p99, 990);
  EXPECT_EQ(summary.p999, 999);
  EXPECT_EQ(summary.max, 1000);
  EXPECT_EQ(summary.mean, 500.5);
  EXPECT_EQ(summarize({7000}).p50, 7);
  EXPECT_EQ(summarize({}).count, 0u);
}

Window window_of(int answers, int64_t ns) {
  Window window;
  window.seconds = 1;
  window.ok.assign(answers, ns);
  window.begun = answers;
  return window;
}

TEST(Windows, AreStableWhenTheLastThreeAgree) {
  const LoadOptions options;
  std::vector<Window> windows = {window_of(10, 1000), window_of(100, 1000), window_of(105, 1000)};
  EXPECT_FALSE(stable({window_of(100, 1000), window_of(100, 1000)}, options));
  EXPECT_FALSE(stable(windows, options));
  windows.push_back(window_of(98, 1000));
  EXPECT_TRUE(stable(windows, options));
  windows.push_back(window_of(100, 2000));
  EXPECT_FALSE(stable(windows, options));  // as many, but slower
  EXPECT_EQ(merged({windows.begin(), windows.begin() + 4}, options).ok.count, 303u);
}

LevelResult level_of(int concurrency, double throughput, int64_t ns) {
  LevelResult result;
  result.level.concurrency = concurrency;
  result.throughput = throughput;
  result.ok = summarize({ns, ns * 2, ns * 3});
  return result;
}

TEST(Report, PictureHasAPointForEachLevelAndPercentile) {
  const std::string svg = picture("<digits>", {level_of(1, 100, 100000), level_of(2, 150, 200000)});
  size_t points = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++points;
  EXPECT_EQ(points, 6u);
  EXPECT_THAT(svg, HasSubstr("&lt;digits>"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(picture("nothing", {}).find("nan"), std::string::npos);
}

TEST(Report, CsvHasALineForEachLevel) {
  const std::string text = csv({level_of(1, 100, 100000), level_of(2, 150, 200000)});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  const size_t columns = std::count(text.begin(), text.begin() + static_cast<long>(text.find('\n')), ',');
  EXPECT_EQ(std::count(text.begin(), text.end(), ','), static_cast<long>(3 * columns));
}

// The same queue, played with dice.
double played(double rate, int64_t most, const StepTimes& times, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(rate);
  double now = 0, next = gap(random);
  int64_t waiting = 0, rows = 0, steps = 0;
  while (steps < 200000) {
    if (waiting == 0) now = std::max(now, next);
    for (; next <= now; next += gap(random)) ++waiting;
    const int64_t taken = std::min(waiting, most);
    waiting -= taken;
    rows += taken;
    ++steps;
    now += times.of(taken);
  }
  return static_cast<double>(rows) / static_cast<double>(steps);
}

TEST(Forecast, OfBatchesIsThatOfTheQueuePlayed) {
  StepTimes times;
  times.add(1, 0.1, 100);  // 1 ms
  times.add(2, 0.12, 100);
  times.add(8, 0.24, 100);
  times.set_gap(0.0001);
  EXPECT_DOUBLE_EQ(times.of(1), 0.0011);
  EXPECT_DOUBLE_EQ(times.of(5), 0.0019);
  EXPECT_NEAR(times.of(10), 0.0029, 1e-12);
  for (const double rate : {100.0, 500.0, 1000.0, 1500.0, 2500.0}) {
    const BatchForecast forecast = forecast_batches(rate, 8, times);
    EXPECT_NEAR(forecast.mean_rows, played(rate, 8, times, 7), 0.02 * forecast.mean_rows) << rate;
    EXPECT_FALSE(forecast.saturated);
    EXPECT_NEAR(std::accumulate(forecast.share_of_rows.begin(), forecast.share_of_rows.end(), 0.0), 1, 1e-6);
  }
  EXPECT_TRUE(forecast_batches(5000, 8, times).saturated);
  EXPECT_EQ(forecast_batches(5000, 8, times).mean_rows, 8);
}

TEST(Report, BatchPictureHasAPointForEachRate) {
  LevelResult result;
  result.level.request_rate = 100;
  result.forecast_rows = 2;
  result.server.executions = 10;
  result.server.inferences = 21;
  const std::string svg = batch_picture("digits", {result});
  EXPECT_THAT(svg, HasSubstr("100/s: 2.10 measured, 2.00 forecast"));
  EXPECT_EQ(batch_picture("nothing", {}).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace sluice::perf
