"""What the tests of quantization share."""

import sluice as sl

VNNI = sl.info.as_dict()["instructions"]["oneDNN"] in ("avx512_core_vnni", "avx512_core_bf16", "avx512_core_amx")
