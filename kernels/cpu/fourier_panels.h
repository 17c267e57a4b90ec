#pragma once
// Transforms as fourier.h plans them, compiled for each instruction set.
#include "kernels/cpu/fourier.h"

namespace sluice::cpu {

// Elements are T, and computed with as C. The workspace has job.workspace() complex numbers per lane.
template <class C>
using FourierFn = void (*)(const FourierJob<C>& job, const FourierLinesAt& lines, C* workspace);

// Of one line, or of as many as a panel has lanes (kPanelBytes of C).
FourierFn<float> float_transform(bool panel);
FourierFn<double> double_transform(bool panel, bool of_floats);

// In place: for what a plan holds.
void transform_line(const FourierPlan<float>& plan, std::complex<float>* line);
void transform_line(const FourierPlan<double>& plan, std::complex<double>* line);

}  // namespace sluice::cpu
