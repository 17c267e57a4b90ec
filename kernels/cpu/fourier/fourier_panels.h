#pragma once
// Transforms as fourier.h plans them, compiled for each instruction set.
#include "kernels/cpu/fourier/fourier.h"

namespace sluice::cpu {

// Transforms up to `lanes` lines, of numbers that are computed with as C. The workspace has job.workspace() complex
// numbers per lane.
template <class C>
struct FourierTransform {
  void (*run)(const FourierJob<C>& job, const FourierLinesAt& lines, C* workspace);
  int64_t lanes;
};

// The transform of one line, or of a panel of them, as wide as the processor's vectors.
FourierTransform<float> float_transform(bool panel);
FourierTransform<double> double_transform(bool panel, bool of_floats);

// In place: for what a plan holds.
void transform_line(const FourierPlan<float>& plan, std::complex<float>* line);
void transform_line(const FourierPlan<double>& plan, std::complex<double>* line);

}  // namespace sluice::cpu
