// Repetition vectors and admissible schedules.
#include <algorithm>
#include <numeric>

#include "base/fix.h"
#include "plan/firing/network.h"
#include "plan/verify.h"

namespace sluice::plan {
namespace {

constexpr int64_t kMaxPeriod = 1'000'000;  // firings of a period: searching one takes under a second

struct Fraction {
  int64_t num = 0, den = 1;
  bool operator==(const Fraction&) const = default;
};

int64_t checked_product(int64_t a, int64_t b) {
  int64_t product = 0;
  SLUICE_CHECK(!__builtin_mul_overflow(a, b, &product) && product < (int64_t{1} << 53),
               "rates: too far apart: a period of more than {} firings; choose rates with common factors", kMaxPeriod);
  return product;
}

Fraction times(Fraction a, Fraction b) {
  const int64_t g1 = std::gcd(a.num, b.den), g2 = std::gcd(b.num, a.den);
  return {checked_product(a.num / g1, b.num / g2), checked_product(a.den / g2, b.den / g1)};
}

int64_t checked_lcm(int64_t a, int64_t b) { return checked_product(a / std::gcd(a, b), b); }

// A step from one actor to another whose firings stand in the ratio `factor`.
struct Link {
  int to = 0;
  Fraction factor;  // firings of `to` per firing of this actor
  int edge = -1;    // -1: sources, which fire alike
  bool forward = true;
};

std::string link_str(const Plan& plan, const Link& link) {
  if (link.edge < 0) return fmt::format("-(makes the steps of)-> '{}'", plan.actors[link.to].name);
  const Edge& edge = plan.edges[link.edge];
  const Register& reg = plan.registers[edge.reg];
  const std::string rates = fmt::format("'{}': 1 per {} firing{}, {} taken per {}", reg.name, reg.emit_every,
                                        reg.emit_every == 1 ? "" : "s", edge.take, edge.hold);
  return fmt::format("{}({}){} '{}'", link.forward ? "-" : "<-", rates, link.forward ? "->" : "-",
                     plan.actors[link.to].name);
}

// Per actor: the actors whose rates follow from its own.
std::vector<std::vector<Link>> links_of(const Plan& plan) {
  std::vector<std::vector<Link>> links(plan.actors.size());
  for (int e = 0; e < static_cast<int>(plan.edges.size()); ++e) {
    const Edge& edge = plan.edges[e];
    const Register& reg = plan.registers[edge.reg];
    // q[producer] / emit_every = q[consumer] * take / hold
    const int64_t g = std::gcd<int64_t>(edge.hold, checked_product(edge.take, reg.emit_every));
    const Fraction down{edge.hold / g, int64_t{edge.take} * reg.emit_every / g};
    links[reg.producer].push_back({edge.consumer, down, e, true});
    links[edge.consumer].push_back({reg.producer, {down.den, down.num}, e, false});
  }
  int first_source = -1;
  for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
    if (!is_started(plan.actors[a])) continue;
    if (first_source >= 0) {
      const int64_t one = plan.actors[first_source].starts, other = plan.actors[a].starts, g = std::gcd(one, other);
      links[first_source].push_back({a, {other / g, one / g}, -1, true});
      links[a].push_back({first_source, {one / g, other / g}, -1, true});
    } else {
      first_source = a;
    }
  }
  return links;
}

// How often actors fire, as multiples of the first of those that links join to them.
//
// Invariant: an actor with a rate, but for the roots, got it over `parent_link_` from `parent_`, which got its own
// before. So the parents lead from each actor to its root, and two actors of one root have a common ancestor.
class Rates {
 public:
  explicit Rates(const Plan& plan)
      : plan_(plan),
        links_(links_of(plan)),
        rate_(plan.actors.size()),
        parent_(plan.actors.size(), -1),
        parent_link_(plan.actors.size()) {}

  bool known(int actor) const { return rate_[actor].num != 0; }
  const Fraction& of(int actor) const { return rate_[actor]; }

  // Gives `root`, and all that links join to it, their rates, and returns these actors. Throws where two ways give an
  // actor different ones. REQUIRES: the root's is not known.
  std::vector<int> spread_from(int root) {
    rate_[root] = {1, 1};
    std::vector<int> component{root};
    for (size_t i = 0; i < component.size(); ++i) {
      const int a = component[i];
      for (const Link& link : links_[a]) {
        const Fraction expected = times(rate_[a], link.factor);
        if (!known(link.to)) {
          rate_[link.to] = expected;
          parent_[link.to] = a;
          parent_link_[link.to] = link;
          component.push_back(link.to);
        } else if (!(rate_[link.to] == expected)) {
          fail(ErrorKind::kValue,
               "rates: inconsistent: {}: '{}' would fire {}/{} and {}/{} times as often as '{}'; the rates around a "
               "cycle must agree",
               cycle_str(a, link), plan_.actors[link.to].name, rate_[link.to].num, rate_[link.to].den, expected.num,
               expected.den, plan_.actors[root].name);
        }
      }
    }
    return component;
  }

 private:
  // The cycle that `link` from `a` closes: down the tree from the common ancestor to `a`, over the link, and back.
  std::string cycle_str(int a, const Link& link) const {
    std::vector<int> up_a, up_b;
    for (int v = a; v >= 0; v = parent_[v]) up_a.push_back(v);
    for (int v = link.to; v >= 0; v = parent_[v]) up_b.push_back(v);
    while (up_a.size() > 1 && up_b.size() > 1 && up_a[up_a.size() - 2] == up_b[up_b.size() - 2]) {
      up_a.pop_back();
      up_b.pop_back();
    }
    std::string cycle = fmt::format("'{}'", plan_.actors[up_a.back()].name);
    const auto append = [&](const Link& hop) { cycle += fmt::format(" {}", link_str(plan_, hop)); };
    for (size_t k = up_a.size() - 1; k-- > 0;) append(parent_link_[up_a[k]]);
    append(link);
    for (size_t k = 0; k + 1 < up_b.size(); ++k) {
      Link back = parent_link_[up_b[k]];
      back.to = up_b[k + 1];
      back.forward = !back.forward;
      append(back);
    }
    return cycle;
  }

  const Plan& plan_;
  const std::vector<std::vector<Link>> links_;
  std::vector<Fraction> rate_;
  std::vector<int> parent_;
  std::vector<Link> parent_link_;
};

// The smallest whole numbers that stand as the rates of the component's actors do, and complete every hold and period
// of theirs. They are written into `repetitions`.
void make_whole(const Plan& plan, const Adjacency& adjacency, const Rates& rates, const std::vector<int>& component,
                std::vector<int64_t>& repetitions) {
  int64_t den = 1, num_gcd = 0;
  for (const int a : component) den = checked_lcm(den, rates.of(a).den);
  for (const int a : component) {
    repetitions[a] = checked_product(rates.of(a).num, den / rates.of(a).den);
    num_gcd = std::gcd(num_gcd, repetitions[a]);
  }
  int64_t scale = 1;
  for (const int a : component) {
    repetitions[a] /= num_gcd;
    int64_t whole = is_started(plan.actors[a]) ? plan.actors[a].starts : 1;
    for (const int e : adjacency.in_edges[a]) whole = checked_lcm(whole, plan.edges[e].hold);
    for (const int r : adjacency.out_registers[a]) whole = checked_lcm(whole, plan.registers[r].emit_every);
    scale = checked_lcm(scale, whole / std::gcd(whole, repetitions[a]));
  }
  for (const int a : component) repetitions[a] = checked_product(repetitions[a], scale);
}

}  // namespace

std::vector<int> repetition_vector(const Plan& plan) {
  const int n = static_cast<int>(plan.actors.size());
  const Adjacency adjacency(plan);
  Rates rates(plan);
  std::vector<int64_t> repetitions(n);
  int64_t total = 0;
  for (int root = 0; root < n; ++root) {
    if (rates.known(root)) continue;
    const std::vector<int> component = rates.spread_from(root);
    make_whole(plan, adjacency, rates, component, repetitions);
    for (const int a : component) {
      total += repetitions[a];
      SLUICE_CHECK(total <= kMaxPeriod,
                   "rates: too far apart: a period of more than {} firings; choose rates with common factors",
                   kMaxPeriod);
    }
  }
  return {repetitions.begin(), repetitions.end()};
}

int steps_of_period(const Plan& plan, const std::vector<int>& repetitions) {
  const auto source = std::find_if(plan.actors.begin(), plan.actors.end(), is_started);
  return repetitions[static_cast<size_t>(source - plan.actors.begin())] / source->starts;
}

namespace {

// One more slot or initial token, or a few, of a register of the cycle: the first that lets a period through.
Fix find_register_fix(const Plan& plan, const std::vector<int>& repetitions, const std::vector<BlockedHop>& cycle) {
  constexpr int kMost = 8, kLongest = 10'000;
  if (std::accumulate(repetitions.begin(), repetitions.end(), int64_t{0}) > kLongest) return {};  // takes too long
  for (int more = 1; more <= kMost; ++more) {
    for (const BlockedHop& hop : cycle) {
      if (hop.wait.index < 0) continue;
      const int index = hop.wait.credit ? hop.wait.index : plan.edges[hop.wait.index].reg;
      Plan other = plan;
      Register& r = other.registers[index];
      if (hop.wait.credit) {
        r.quota += more;
      } else {
        r.initial_tokens += more;
        if (r.initial_tokens > r.quota || r.in_place_of >= 0) continue;
      }
      for (Register& in_place : other.registers) in_place.in_place_of = -1;  // slots would have to grow together
      Network network(other);
      std::vector<int> schedule;
      const std::vector<int> left = run_greedily(network, repetitions, schedule);
      if (std::any_of(left.begin(), left.end(), [](int n) { return n > 0; })) continue;
      return {{"register", r.name},
              {hop.wait.credit ? "quota" : "initial_tokens", int64_t{hop.wait.credit ? r.quota : r.initial_tokens}}};
    }
  }
  return {};
}

}  // namespace

std::vector<int> find_schedule(const Plan& plan) {
  const std::vector<int> repetitions = repetition_vector(plan);
  Network network(plan);
  std::vector<int> schedule;
  const std::vector<int> left = run_greedily(network, repetitions, schedule);
  if (std::any_of(left.begin(), left.end(), [](int n) { return n > 0; })) {
    const std::vector<BlockedHop> cycle = shortest_blocking_cycle(network, left);
    throw FixableError(ErrorKind::kValue,
                       fmt::format("liveness: deadlock: {}; a register of the cycle needs more slots or initial tokens",
                                   blocking_cycle_str(plan, cycle)),
                       find_register_fix(plan, repetitions, cycle));
  }
  return schedule;
}

}  // namespace sluice::plan
