#pragma once
namespace sluice {

class KernelTable;

}  // namespace sluice

namespace sluice::cpu {

void add_image_kernels(KernelTable& table);  // decode_jpeg

}  // namespace sluice::cpu
