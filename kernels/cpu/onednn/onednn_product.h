#pragma once
// Products of matrices by oneDNN.
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/onednn/onednn.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {

// c = act(a b + bias) + residual: c and the residual are contiguous; a and b have c's rank and any strides that the
// multiplier reads.
struct Product {
  TensorSpec a, b, c;
  bool bias = false, residual = false;
  int packed_b = -1;  // the input of the kernel that is b, if others may keep it packed; -1: b comes as it lies
  std::string activation = "none";
  int threads = 1;

  int64_t rows() const { return c.shape[c.shape.rank() - 2]; }
  int64_t cols() const { return c.shape[c.shape.rank() - 1]; }
  int64_t inner() const { return a.shape[a.shape.rank() - 1]; }
};

// True if oneDNN reads a matrix (or a batch of them): its rows or its columns are dense, and no two elements share a
// place.
bool onednn_reads(const TensorSpec& spec);

// A row of c has the same bits however many rows there are, where a is one matrix of dense rows. oneDNN sees to that
// with AVX-512. Its kernels for AVX2 take six rows at a time and add up the products of one to three rows left over in
// another order; and their threads, where there are few columns, share out rows, or even parts of a sum. So there the
// rows are shared out here, in sixes, and those left over are multiplied as four. One row of float32 is multiplied by
// own code (row_product.h), which reads b as it lies, where that is known to sum up as oneDNN does.
// Thread safety: run() may be called from several threads at once.
class OnednnProduct {
 public:
  // Adds to `workspace` what run() needs there. Throws Error(kUnsupported), which names `op`.
  OnednnProduct(const char* op, const Product& product, WorkspaceLayout& workspace);
  void run(const void* a, const void* b, const void* bias, const void* residual, void* c, void* workspace) const;
  uint64_t held_bytes() const { return blocks_.size() * onednn::Primitive::kHeldBytes; }
  // If there is one, run() takes b packed, with the same bits.
  const std::optional<Packing>& packing() const { return packing_; }

 private:
  // Rows of the product, by a primitive of their own.
  struct Block {
    int64_t first = 0, rows = 0;
    // Rows of zeros that the primitive takes besides. Then it works on copies, in the workspace.
    int64_t padding = 0;
    uint64_t copy_of_a = 0, copy_of_residual = 0, copy_of_c = 0, scratchpad = 0;  // there
    std::unique_ptr<onednn::Primitive> primitive = nullptr;
  };
  void add_block(const char* op, Block block, int threads, WorkspaceLayout& workspace);
  void run_block(const Block& block, const void* a, const void* b, const void* bias, const void* residual, void* c,
                 void* workspace) const;
  void run_row(const void* a, const void* b, const void* bias, const void* residual, void* c) const;

  Product product_;
  int64_t chunk_ = 0;  // of RowProduct; 0: oneDNN multiplies
  std::optional<Packing> packing_;
  std::vector<Block> blocks_;
  int teams_ = 1;  // threads that take a block each
};

}  // namespace sluice::cpu
