// The list of all built-in ops: one line per family.
#include "graph/ops/activation.h"
#include "graph/ops/attention.h"
#include "graph/ops/branches.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/composed.h"
#include "graph/ops/convolution.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/embedding.h"
#include "graph/ops/fft.h"
#include "graph/ops/folded_weights.h"
#include "graph/ops/foreign.h"
#include "graph/ops/fused.h"
#include "graph/ops/fused_batch_norm.h"
#include "graph/ops/fused_convolution.h"
#include "graph/ops/fused_matmul.h"
#include "graph/ops/fused_rows.h"
#include "graph/ops/global.h"
#include "graph/ops/host.h"
#include "graph/ops/images.h"
#include "graph/ops/indexing.h"
#include "graph/ops/linalg.h"
#include "graph/ops/lines.h"
#include "graph/ops/loops.h"
#include "graph/ops/losses.h"
#include "graph/ops/matmul.h"
#include "graph/ops/micro_batches.h"
#include "graph/ops/movement.h"
#include "graph/ops/multi_update.h"
#include "graph/ops/normalization.h"
#include "graph/ops/optimizer_updates.h"
#include "graph/ops/pooling.h"
#include "graph/ops/positions.h"
#include "graph/ops/quantization.h"
#include "graph/ops/random.h"
#include "graph/ops/recurrent.h"
#include "graph/ops/reduction.h"
#include "graph/ops/resampling.h"
#include "graph/ops/samples.h"
#include "graph/ops/softmax.h"
#include "graph/ops/special.h"
#include "graph/ops/spill.h"
#include "graph/ops/strided_view.h"
#include "graph/ops/taps.h"

namespace sluice {

const OpRegistry& builtin_ops() {
  static const OpRegistry registry = [] {
    const std::span<const OpDef* const> families[] = {
        ops::activation_ops(),    ops::selection_ops(),
        ops::reduction_ops(),     ops::movement_ops(),
        ops::global_ops(),        ops::indexing_ops(),
        ops::positions_ops(),     ops::creation_ops(),
        ops::random_ops(),        ops::host_ops(),
        ops::images_ops(),        ops::view_ops(),
        ops::matmul_ops(),        ops::convolution_ops(),
        ops::pooling_ops(),       ops::normalization_ops(),
        ops::softmax_ops(),       ops::losses_ops(),
        ops::embedding_ops(),     ops::optimizer_updates_ops(),
        ops::fused_ops(),         ops::fused_rows_ops(),
        ops::micro_batches_ops(), ops::branches_ops(),
        ops::loops_ops(),         ops::linalg_ops(),
        ops::ldl_ops(),           ops::decomposition_ops(),
        ops::lines_ops(),         ops::strided_view_ops(),
        ops::complex_ops(),       ops::composed_ops(),
        ops::fft_ops(),           ops::flat_index_ops(),
        ops::attention_ops(),     ops::fused_convolution_ops(),
        ops::quantization_ops(),  ops::fused_batch_norm_ops(),
        ops::fused_matmul_ops(),  ops::multi_update_ops(),
        ops::recurrent_ops(),     ops::taps_ops(),
        ops::resampling_ops(),    ops::folded_weights_ops(),
        ops::samples_ops(),       ops::fixed_point_ops(),
        ops::foreign_ops(),       ops::spill_ops(),
    };
    OpRegistry r;
    for (const auto& family :
         {ops::unary_functions(), ops::binary_functions(), ops::comparison_functions(), ops::special_functions()})
      for (const ops::TensorFunction& f : family) r.add(f.op);
    for (const auto& family : families)
      for (const OpDef* op : family) r.add(op);
    return r;
  }();
  return registry;
}

}  // namespace sluice
