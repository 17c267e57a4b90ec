#pragma once
// The families' lists of public functions; graph/ops/all_forms.cpp joins them.
#include <vector>

#include "graph/forms/form.h"

namespace sluice::ops {

std::vector<Form> arithmetic_forms();
std::vector<Form> reduction_forms();
std::vector<Form> shaping_forms();
std::vector<Form> indexing_forms();
std::vector<Form> matmul_forms();
std::vector<Form> linalg_forms();
std::vector<Form> matrix_forms();  // a part of linalg_forms()
std::vector<Form> norm_forms();
std::vector<Form> special_forms();
std::vector<Form> window_forms();
std::vector<Form> pooling_forms();
std::vector<Form> network_forms();
std::vector<Form> activation_forms();
std::vector<Form> loss_forms();
std::vector<Form> distance_forms();
std::vector<Form> spatial_forms();
std::vector<Form> diagonal_forms();
std::vector<Form> stacking_forms();
std::vector<Form> product_forms();
std::vector<Form> order_forms();
std::vector<Form> statistics_forms();
std::vector<Form> numeric_forms();
std::vector<Form> complex_forms();
std::vector<Form> fft_forms();

// The forms in tensor/forms/data_forms.cpp, which read the contents of tensors, call these.
std::vector<Value> tensor_split(const Value& x, int64_t sections, int64_t dim);
std::vector<Value> tensor_split(const Value& x, const Ints& indices, int64_t dim);

}  // namespace sluice::ops
