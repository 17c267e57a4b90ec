#pragma once
// Sources are written with this. A kernel's body is text that never changes; what a query fixes (types, sizes, strides)
// stands in front of it as typedefs, constants and functions.
#include "kernels/cpu/strides/strided.h"
#include "kernels/cuda/source.h"

namespace sluice::cuda {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
const char* c_type(DType dtype);
const char* bits_type(size_t size);         // unsigned, of as many bytes
const char* compute_type(DType dtype);      // float (also for 16-bit floats), double, or i64
uint64_t compute_size(DType dtype);         // bytes of it
std::string number_text(double value);      // also of infinities and NaN
int64_t blocks_for(int64_t elements);       // of a loop over elements; bounded
const char* index_type(uint64_t elements);  // 32 bits where they do
uint64_t reach(const TensorSpec& spec);     // bytes between the ends of a tensor, whichever way its strides run
// "// in0: 480 bytes", for readers and for the tests' driver, which holds accesses against each other by it.
std::string reach_note(const std::string& name, const TensorSpec& spec);

// "Index NAME(Index i)": where element i of a nest lies, for one operand.
std::string index_function(const std::string& name, const cpu::LoopNest& nest, int operand);
// The same for the row-major order of a tensor.
std::string index_function(const std::string& name, const Shape& shape, const Strides& strides);

// Elements of 16 bytes, where an operand's dim of `size` dense elements is a multiple of that; else 1.
int64_t pack_of(DType dtype, int64_t size);

// Threads of a block that work on one unit together: `size` of them, a power of two. Interleaved: neighbouring threads
// belong to different units, for units that are neighbours in memory; else to the same one.
struct Team {
  int64_t size = 1;
  bool interleaved = false;
};
Team team_for(int64_t length, bool interleaved);

// Writes the stages of one query. Its kernels take every input and output as in0, in1, ..., out0, ..., of types In0,
// Out0, ..., then `work`; Index counts elements.
class Writer {
 public:
  // `inputs`: how many the op has with its optional ones; absent ones are null. `elements`: what Index must count
  // beside the operands' elements.
  explicit Writer(const plan::KernelQuery& query, size_t inputs = 0, int64_t elements = 0);

  uint64_t index_size() const { return index_size_; }  // bytes of Index

  void compute(DType dtype);  // C is what it is computed in
  void constant(const char* name, int64_t value);
  void number(const char* name, double value);  // of type C
  void add(const std::string& text) { head_ += text; }

  // The body once for each i below `count`; `before` once for each thread, ahead of its first i.
  Source each(const char* name, int64_t count, const std::string& body, const std::string& before = "") const;
  // The body once for each `unit` below `units`, by the member()s of a team. Every thread must reach each over_team();
  // one of no unit has !inside.
  Source teams(const char* name, int64_t units, const Team& team, const std::string& body) const;
  // The body by `blocks` blocks. `per_sm`: so many shall fit a multiprocessor, whatever registers that leaves; 0: any.
  Source blocks(const char* name, int64_t blocks, const std::string& body, int per_sm = 0) const;

 private:
  const plan::KernelQuery& query_;
  std::string head_, parameters_;
  uint64_t index_size_ = 4;
  std::vector<Operand> operands_;
};

// One A per output, of `length` elements each, joined in an order that depends on the numbers here alone. The writer
// has a struct A and A join(A, A).
struct Reduction {
  const char* name = "";
  int64_t outputs = 0, length = 0;
  bool by_column = false;  // neighbouring outputs lie next to each other, the elements of one do not
  std::string first = {};  // what is joined first, as an A; empty: an element, where joining it twice is harmless
  std::string take = {}, finish = {};  // element i of output o, as an A; statements that use o and the A `total`
  uint64_t size = 8;                   // sizeof(A)
  DescribeFailure describe = nullptr;
};
void reduce(const Writer& writer, const Reduction& reduction, Generated& generated);

// Joins the A's of a line, from the first up to each: join() need not commute, and `first` changes nothing.
struct Scan {
  int64_t lines = 0, length = 0;
  std::string first = {}, take = {},
              put = {};  // an A; element i of line `unit`, as an A; statements that use i and `total`
};
// A team goes along a line, four elements a member at a time.
Source scan(const Writer& writer, const Scan& scan);

// z[m][n] = sum over k of a[m][k] * b[k][n], for g below `batch`, by tiles through shared memory.
struct Product {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool a_by_row = false, b_by_row = false, z_by_row = true;  // neighbours in memory lie along k (a), n (b, z)
  std::string a, b;                                          // expressions of type C in g, m, k and g, k, n
  std::string put;                                           // statements that take C z at g, m, n
  uint64_t size = 8;                                         // sizeof(C)
};
void multiply(const Writer& writer, const Product& product, Generated& generated);

}  // namespace sluice::cuda
